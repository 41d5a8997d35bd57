"""Compares two fingerprints: which tensors correspond, and how each pair differs."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from numscope.parity.fused import layers_of_fused
from numscope.parity.likeness import ROUNDED, ROUNDING, Likeness, likeness
from numscope.records.fingerprint import LOW, Fingerprint, Sketch, TensorPrint, merge_all
from numscope.records.words import count, escape, few
from numscope.runs.align import ObservedLayer, align

Given = Fingerprint | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Cause = Literal["", "earlier", "adapter", "elsewhere", "order", "shifted", "rounded"]
_MOST, _FEW = 20, 4  # tensors that the text lists; of one cause
_REORDERED = 0.1  # of the norm, a difference beside which sum and norm are not equal by chance
_SAME_MOMENTS = 1e-5  # of the norm
_ALONG = 0.1  # of a difference, what is left where it is a multiple of another one


@dataclass(frozen=True, slots=True)
class TensorPair:
    """Two tensors that correspond.

    Args:
        a, b: their names.
        likeness: how b differs from a; None where parts of one are missing or the shapes differ, as ``why`` says.
        adapter: of which side the adapter was merged into the weight, since the other side has none; ``a`` or ``b``.
        cause: why they differ, if known. ``earlier``: b has a tensor of the history. ``adapter``: the adapter of one side is not in the
            other, or a multiple of it. ``elsewhere``: b has another tensor of a. ``order``: b has a's numbers in another order, by their
            sum and norm. ``shifted``: b is a + 1 or a - 1, by their sum and norm, as a norm's weight is stored by some libraries.
            ``rounded``: they are equal once rounded to 16 bits.
        why: the cause, or what kept them from being compared, in words.
        tolerance: of the difference, in units of a's norm.
    """

    a: str
    b: str
    likeness: Likeness | None
    adapter: str = ""
    cause: Cause = ""
    why: str = ""
    tolerance: float = ROUNDING

    @property
    def differs(self) -> bool:
        return self.likeness is None or not (self.likeness.equal or self.likeness.difference <= self.tolerance)

    @property
    def names(self) -> str:
        """One name where they are the same but for a prefix."""
        return self.a if f".{self.a}".endswith(f".{self.b}") or self.b.endswith(f".{self.a}") else f"{self.a} and {self.b}"

    def text(self) -> str:
        told = [] if self.likeness is None else [self.likeness.text()]
        told += [f"with the adapter of {self.adapter} merged"] if self.adapter else []
        return f"{self.names}: {', '.join([*told, self.why] if self.why else told)}"


@dataclass(frozen=True, slots=True)
class FingerprintComparison:
    """The outcome of comparing two fingerprints; true where nothing differs and nothing is missing.

    Of outputs, those that one model has alone are no difference: an adapter's modules, an attention's weights that another kernel never
    makes. It is true where both models have some in common, and all of these agree.

    Args:
        pairs: the tensors that both have, in a's order.
        only_a, only_b: names of those that one has alone.
        what: the tensors are; of ``output``, in the order in which modules gave them, the text has the first that differs alone.
    """

    pairs: tuple[TensorPair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    what: Literal["tensor", "output"] = "tensor"

    @property
    def differing(self) -> tuple[TensorPair, ...]:
        """The pairs that differ."""
        return tuple(pair for pair in self.pairs if pair.differs)

    def __bool__(self) -> bool:
        return bool(self.pairs and not self.differing) if self.what == "output" else not (self.differing or self.only_a or self.only_b)

    def __str__(self) -> str:
        """Tensors that differ for one known reason share a line; then come the others, largest difference first; roundings come last."""
        differing = self.differing
        agree = "are equal" if self.what == "tensor" else "agree within rounding"
        lines = [f"{len(self.pairs) - len(differing)} of {count(len(self.pairs), self.what)} {agree}"]
        groups: dict[str, list[TensorPair]] = {}
        for pair in differing:
            groups.setdefault(pair.why if pair.cause else f"{pair.a}: {pair.why}", []).append(pair)
        told = [
            pairs[0].text() if len(pairs) == 1 else f"{count(len(pairs), 'tensor')}: {pairs[0].why}: {few([p.names for p in pairs], _FEW)}"
            for pairs in sorted(groups.values(), key=_rank)
        ]
        if self.what == "output":
            told = [f"the first that differs: {pair.text()}" for pair in differing[:1]]
            sides = (("a", self.only_a), ("b", self.only_b))
            told += [f"only in {side}, not compared: {count(len(names), 'output')}: {few(names, _FEW)}" for side, names in sides if names]
            return "\n  ".join([lines[0], *map(escape, told)])
        for what, found in (("", told), ("only in a: ", self.only_a), ("only in b: ", self.only_b)):
            lines += [f"  {what}{escape(one)}" for one in found[:_MOST]]
            if len(found) > _MOST:
                lines.append(f"  {what}{len(found) - _MOST} more")
        return "\n".join(lines)


def _rank(pairs: Sequence[TensorPair]) -> tuple[bool, bool, float]:
    size = math.inf if pairs[0].likeness is None or any(pairs[0].likeness.num_nonfinite) else pairs[0].likeness.difference
    return pairs[0].cause == "rounded", not pairs[0].cause, -size


def compare(a: Given, b: Given, *, history: Mapping[int | str, Given] | None = None) -> FingerprintComparison:
    """Which tensors two fingerprints share, and how each pair differs: bits, relative difference, cosine, factor, with their bounds.

    Tensors correspond by name; by name without the segments of wrappers; by a prefix that one side has, or that was renamed; and equal ones
    whatever their names. Of a tied weight one name is enough. A fused layer counts as its parts where the other side has these, and a
    weight with an adapter beside it as merged where the other side has no adapter.

    Args:
        a, b: fingerprints, files of ``Fingerprint.save``, or lists of files, one for each rank.
        history: what a was before, or is elsewhere, by step or label: a tensor of b that differs is looked for there, so that stale
            weights are told to be those of ``step 37``.

    Raises: UsageError where a file can't be read.
    """
    found, before = _compared(_loaded(a), _loaded(b)), {label: _loaded(one) for label, one in (history or {}).items()}
    return replace(found, pairs=tuple(_explained(found.pairs, _loaded(a), _loaded(b), before)))


def _loaded(given: Given) -> Fingerprint:
    if isinstance(given, Fingerprint):
        return given
    return Fingerprint.load(*([given] if isinstance(given, str | os.PathLike) else given))


def _compared(a: Fingerprint, b: Fingerprint) -> FingerprintComparison:
    aligned = align(*([ObservedLayer(name, "", frozenset()) for name in one.tensors] for one in (a, b)))
    mates = {pair.a: pair.b for pair in aligned.pairs}
    keys = {_key(b.tensors[name]): name for name in reversed(aligned.only_b)}
    keys.pop(None, None)
    for name in aligned.only_a:
        mate = keys.pop(_key(a.tensors[name]), None)
        mates |= {} if mate is None else {name: mate}
    fused = {layer for name in mates for layer in layers_of_fused(name)}  # is compared as it is
    adapted = [{name.partition(".lora_")[0] for name in one.tensors if ".lora_" in name} for one in (a, b)]
    pairs = [
        _pair(name, one, mate, b.tensors[mate], all(n.rpartition(".")[0] in side for n, side in zip((name, mate), adapted, strict=True)))
        for name, one in a.tensors.items()
        if name not in fused and (mate := mates.get(name)) is not None
    ]
    only = [_without_twins(one, taken) for one, taken in ((a, set(mates)), (b, set(mates.values())))]
    return FingerprintComparison(tuple(pairs), tuple(only[0]), tuple(only[1]))


def _key(one: TensorPrint) -> tuple[object, ...] | None:
    whole = one.whole
    return None if whole is None or not whole.square_sum else (one.shape, one.dtype, whole.checksum)


def _without_twins(one: Fingerprint, taken: set[str]) -> list[str]:
    """Names without a mate, apart from those of tied tensors, of a fused layer whose parts have mates, of such parts, and of adapters."""
    twins = {_key(one.tensors[name]) for name in taken} - {None}
    known = set(one.tensors)
    parts = {layer: name for name in known for layer in layers_of_fused(name) if layer in known}
    covered = {name for layer, name in parts.items() if layer in taken}
    merged = any(tensor.merged is not None for tensor in one.tensors.values())
    return [
        name
        for name in one.tensors
        if name not in taken
        and _key(one.tensors[name]) not in twins
        and name not in covered
        and name not in parts
        and not (merged and ".lora_" in name)
    ]


def _pair(name: str, a: TensorPrint, mate: str, b: TensorPrint, both_adapted: bool) -> TensorPair:
    """Where both have an adapter beside the weight, one may have it merged as well: the nearer of both readings counts."""
    if a.shape != b.shape:
        return TensorPair(name, mate, None, why=f"shapes {list(a.shape)} and {list(b.shape)}")
    left, right = a.whole, b.whole
    if left is None or right is None:
        if set(a.parts) != set(b.parts):
            return TensorPair(name, mate, None, why=f"parts of {'a' if left is None else 'b'} are missing: load the files of all ranks")
        return TensorPair(name, mate, likeness(merge_all(a.parts.values()), merge_all(b.parts.values()), a.dtype == b.dtype))
    same_type = a.dtype == b.dtype
    found, merged = likeness(left, right, same_type), likeness(a.merged or left, b.merged or right, same_type)
    if both_adapted:
        return TensorPair(name, mate, min(found, merged, key=lambda like: like.difference))
    return TensorPair(name, mate, merged, "" if (a.merged is None) == (b.merged is None) else "a" if b.merged is None else "b")


def _explained(
    pairs: Sequence[TensorPair], a: Fingerprint, b: Fingerprint, history: Mapping[int | str, Fingerprint]
) -> Iterator[TensorPair]:
    """The pairs, those that differ with their causes. Of several steps that explain one, the step that explains most is told."""
    places = {key: name for name, tensor in a.tensors.items() for key in _keys(tensor)}
    labels = {
        pair.a: [label for label, one in history.items() if pair.a in one.tensors and _is_as(one.tensors[pair.a], b.tensors[pair.b])]
        for pair in pairs
        if pair.differs
    }
    votes = Counter(label for found in labels.values() for label in found)
    for pair in pairs:
        if pair.differs:
            one, other = a.tensors[pair.a], b.tensors[pair.b]
            label = max(reversed(labels[pair.a]), key=votes.__getitem__, default=None)
            cause, why = _cause(pair, one, other, label, next((places[key] for key in _keys(other) if key in places), pair.a))
            dtypes = f"{one.dtype} and {other.dtype}" if one.dtype != other.dtype else ""
            pair = replace(pair, cause=cause, why=", ".join(filter(None, (why or pair.why, dtypes))))
        yield pair


def _cause(pair: TensorPair, a: TensorPrint, b: TensorPrint, label: int | str | None, place: str) -> tuple[Cause, str]:
    left, right = a.whole, b.whole
    if left is None or right is None:
        return "", ""
    low = _low(a.merged or left, b.merged or right, a.dtype, b.dtype) if pair.likeness is not None else ""
    if label is not None and (not low or a.dtype == b.dtype):
        return "earlier", f"b has that of {label if isinstance(label, str) else f'step {label}'}"
    if low and pair.likeness is not None and (a.dtype != b.dtype or pair.likeness.difference > ROUNDED[low]):  # not a small step away
        return "rounded", f"equal once rounded to {low}"
    if pair.adapter and _is_as(replace(a, merged=None), replace(b, merged=None)):
        return "adapter", f"the adapter of {pair.adapter} is not in {'b' if pair.adapter == 'a' else 'a'}"
    if pair.adapter and (times := _times(a, b) if pair.adapter == "a" else _times(b, a)) is not None:
        return "adapter", f"{'b' if pair.adapter == 'a' else 'a'} has the adapter of {pair.adapter} {times:.4g} times"
    if place != pair.a:
        return "elsewhere", f"b has a's {place} there"
    if pair.likeness is None or pair.likeness.difference > _REORDERED:
        if left.norm and max(abs(left.sum - right.sum), abs(left.norm - right.norm)) <= _SAME_MOMENTS * left.norm:
            is_turned, is_larger = sorted(a.shape) == sorted(b.shape), left.numel != right.numel
            word = "transposed?" if is_turned else "padded with zeros?" if is_larger else "reshaped?"
            return "order", f"{pair.why}: {word}" if pair.why else "b has a's numbers in another order, by their sum and norm?"
        for shift in (1, -1) if pair.likeness is not None else ():
            norm = math.sqrt(max(0.0, left.square_sum + shift * (2 * left.sum + shift * left.numel)))
            if max(abs(left.sum + shift * left.numel - right.sum), abs(norm - right.norm)) <= _SAME_MOMENTS * norm:
                return "shifted", f"b is a {'+' if shift > 0 else '-'} 1, by their sum and norm?"
    return "", ""


def _times(adapted: TensorPrint, other: TensorPrint) -> float | None:
    """How often a weight has the adapter of another one in it; None where it is no multiple of that."""
    base, merged, held = adapted.whole, adapted.merged, other.whole
    if base is None or merged is None or held is None:
        return None
    own = [x - y for x, y in zip(merged.sums, base.sums, strict=True)]
    theirs = [x - y for x, y in zip(held.sums, base.sums, strict=True)]
    size = math.fsum(x * x for x in own)
    times = math.fsum(x * y for x, y in zip(own, theirs, strict=True)) / size if size else 0.0
    rest = math.sqrt(math.fsum((y - times * x) ** 2 for x, y in zip(own, theirs, strict=True)))
    return times if times and rest <= _ALONG * abs(times) * math.sqrt(size) else None


def _low(a: Sketch, b: Sketch, *dtypes: str) -> str:
    """The 16-bit dtype in which they are equal; the one of either where it has one."""
    within = [dtype for dtype in LOW if dtype in dtypes] or LOW
    return next((dtype for dtype, x, y in zip(LOW, a.rounded, b.rounded, strict=True) if dtype in within and x == y != 0), "")


def _is_as(a: TensorPrint, b: TensorPrint) -> bool:
    """Whether b is a, in the dtype of b."""
    left, right = a.merged or a.whole, b.merged or b.whole
    if left is None or right is None or a.shape != b.shape:
        return False
    like = likeness(left, right, a.dtype == b.dtype)
    return like.equal or like.difference <= ROUNDING or (a.dtype != b.dtype and _low(left, right, a.dtype, b.dtype) != "")


def _keys(one: TensorPrint) -> Iterator[tuple[object, ...]]:
    """As another tensor may have it: itself, and rounded."""
    whole = one.whole
    if whole is not None and whole.square_sum:
        yield one.shape, one.dtype, whole.checksum
        yield from ((one.shape, dtype, checksum) for dtype, checksum in zip(LOW, whole.rounded, strict=True) if checksum)
