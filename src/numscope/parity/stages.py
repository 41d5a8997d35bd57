"""Stages of a pipeline: their parameters under the names that the whole model has for them, recognized by their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from numscope.parity.layout import RecordedLayout
from numscope.parity.recording import RecordedRank, RecordedStep
from numscope.records.fingerprint import Fingerprint, TensorPrint
from numscope.records.words import count


def as_in_whole(layout: RecordedLayout, whole: RecordedLayout) -> tuple[RecordedLayout, str]:
    """A layout with the names of another one, and a note on what was renamed; "" where nothing was.

    A rank that has all names of the whole, or those of its parameters that it has under the same names, keeps them.
    """
    names = [names_in_whole(one.steps[0].weights.tensors, whole.merged(0, "weights")) for one in layout.ranks]
    if not any(names):
        return layout, ""
    rank, old, new = next((one.rank, old, new) for one, known in zip(layout.ranks, names, strict=True) for old, new in known.items())
    num = count(sum(map(len, names)), "parameter")
    told = f"{num} recognized by weights, under another name: {old} of rank {rank} is {new}"
    return RecordedLayout([_renamed(one, known) for one, known in zip(layout.ranks, names, strict=True)]), told


def names_in_whole(own: Mapping[str, TensorPrint], whole: Mapping[str, TensorPrint]) -> dict[str, str]:
    """For a stage's parameters that have other names in the whole model these names. Equal bits say which it is; of several with equal
    bits (new norms, zeros) the neighbors of one that was recognized.
    """
    if own.keys() == whole.keys():
        return {}
    by_bits: dict[tuple[object, ...], list[str]] = {}
    for name, one in whole.items():
        by_bits.setdefault(_bits(one), []).append(name)
    candidates = {name: by_bits.get(_bits(one), []) if one.whole is not None else [] for name, one in own.items()}
    found = {name: known[0] for name, known in candidates.items() if len(known) == 1}
    for step in (-1, 1):  # a layer's norm comes before its weights
        _spread([*own][::step], candidates, [*whole], found, step)
    return {old: new for old, new in found.items() if old != new} if len({*found.values()}) == len(found) else {}


def _spread(own: Sequence[str], candidates: Mapping[str, Sequence[str]], whole: Sequence[str], found: dict[str, str], step: int) -> None:
    """From each parameter that is known to the next one, where that may be the whole's next one."""
    for name, following in pairwise(own):
        at = whole.index(found[name]) + step if name in found else -1
        if following not in found and 0 <= at < len(whole) and whole[at] in candidates[following] and whole[at] not in found.values():
            found[following] = whole[at]


def _bits(one: TensorPrint) -> tuple[object, ...]:
    whole = one.whole
    return (one.shape, one.dtype, None if whole is None else whole.checksum)


def _renamed(one: RecordedRank, names: Mapping[str, str]) -> RecordedRank:
    def renamed(given: Fingerprint) -> Fingerprint:
        return Fingerprint({names.get(name, name): tensor for name, tensor in given.tensors.items()})

    def of(step: RecordedStep) -> RecordedStep:
        weights, gradients, clipped = map(renamed, (step.weights, step.gradients, step.clipped))
        return replace(step, weights=weights, gradients=gradients, clipped=clipped, own=[*map(renamed, step.own)])

    order, unread = ([names.get(name, name) for name in given] for given in (one.order, one.unread))
    return replace(one, order=order, unread=unread, steps=[*map(of, one.steps)])
