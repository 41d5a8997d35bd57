"""Pairs the layers of two runs, whose models may be wrapped, nested or written differently."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from numscope.records.site import WRAPPER_SEGMENTS

How = Literal["name", "wrapper", "prefix", "order"]


@dataclass(frozen=True, slots=True)
class ObservedLayer:
    name: str  # as the run's observations have it
    cls: str  # its class; "" where it is unknown
    tensors: frozenset[str]  # its observed tensors


@dataclass(frozen=True, slots=True)
class LayerPair:
    """A layer under both its names, and how it was recognized."""

    a: str
    b: str
    how: How


@dataclass(frozen=True, slots=True)
class Alignment:
    """Layers that both runs have, and those that only one has."""

    pairs: tuple[LayerPair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


def align(a: Sequence[ObservedLayer], b: Sequence[ObservedLayer]) -> Alignment:
    """Pairs two runs' layers: by name, by name without wrappers' segments, by a renamed prefix, at last by class and order of execution.

    A later way only sees what the earlier ones left over. Class and order pair a kind of layer (class and observed tensors) only where both
    runs have equally many left: a guess that starts with a missing layer would shift all that follow.
    """
    found: dict[str, tuple[str, How]] = {}
    taken: set[str] = set()

    def take(pairs: Sequence[tuple[str, str]], how: How) -> None:
        for one, other in pairs:
            if one not in found and other not in taken:
                found[one] = (other, how)
                taken.add(other)

    def left() -> tuple[list[ObservedLayer], list[ObservedLayer]]:
        return [x for x in a if x.name not in found], [x for x in b if x.name not in taken]

    take(_matched(*left(), lambda layer: layer.name, most=1), "name")
    take(_matched(*left(), lambda layer: _unwrapped(layer.name), most=1), "wrapper")
    while pairs := _renamed(*left()):
        take(pairs, "prefix")
    rest_a, rest_b = ([layer for layer in side if layer.cls] for side in left())
    take(_matched(rest_a, rest_b, lambda layer: (layer.cls, layer.tensors)), "order")
    only_a, only_b = left()
    kept = tuple(LayerPair(x.name, *found[x.name]) for x in a if x.name in found)
    return Alignment(kept, tuple(x.name for x in only_a), tuple(x.name for x in only_b))


def _matched(
    a: list[ObservedLayer], b: list[ObservedLayer], key: Callable[[ObservedLayer], Hashable], most: int = sys.maxsize
) -> list[tuple[str, str]]:
    """Pairs layers with the same key in their order, if both sides have equally many of them, and at most ``most``."""
    sides: list[defaultdict[Hashable, list[str]]] = [defaultdict(list), defaultdict(list)]
    for side, layers in zip(sides, (a, b), strict=True):
        for layer in layers:
            side[key(layer)].append(layer.name)
    alike = [(names, sides[1].get(kind, [])) for kind, names in sides[0].items()]
    return [pair for names, others in alike if len(names) == len(others) <= most for pair in zip(names, others, strict=True)]


def _unwrapped(name: str) -> str:
    return ".".join(segment for segment in name.split(".") if segment not in WRAPPER_SEGMENTS)


def _renamed(a: list[ObservedLayer], b: list[ObservedLayer]) -> list[tuple[str, str]]:
    """The pairs that follow from the one change of prefix that explains most names; two layers at least must bear it out.

    A prefix that only one side has needs no second witness: ``model.fc`` and ``fc``.
    """
    by_last: defaultdict[str, list[list[str]]] = defaultdict(list)
    for layer in b:
        segments = _unwrapped(layer.name).split(".")
        by_last[segments[-1]].append(segments)
    votes: Counter[tuple[str, str]] = Counter()
    for layer in a:
        one = _unwrapped(layer.name).split(".")
        for other in by_last[one[-1]]:
            shared = 1
            while shared < min(len(one), len(other)) and one[-shared - 1] == other[-shared - 1]:
                shared += 1
            votes[".".join(one[:-shared]), ".".join(other[:-shared])] += 1
    sure = [(count, -len(x) - len(y), x, y) for (x, y), count in votes.items() if count > 1 or not x or not y]
    if not sure:
        return []
    _, _, old, new = max(sure)

    def rest(name: str, prefix: str) -> str:
        name = _unwrapped(name)
        if not prefix:
            return name
        return name[len(prefix) + 1 :] if name.startswith(prefix + ".") else ""

    here = [x for x in a if rest(x.name, old)]
    there = [x for x in b if rest(x.name, new)]
    # Names without the prefix keep it apart: "" is no rest of any, so both sides hold bearers of the prefix alone.
    ours, theirs = {rest(x.name, old): x.name for x in here}, {rest(x.name, new): x.name for x in there}
    return [(name, theirs[key]) for key, name in ours.items() if key in theirs]
