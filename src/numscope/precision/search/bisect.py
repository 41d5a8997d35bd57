"""Searches for the smallest set of GEMMs whose high precision cures a run, with any oracle that decides whether a set does.

No model runs here. Each answer of the oracle is a short training run, so the cost is the number of its calls.

The search finds one culprit at a time. In an ordered list of candidates that cures as a whole, it bisects the list's beginnings until it
has two neighbors of which the longer cures and the shorter does not. The element between them is kept, the elements behind it are not
needed, and the search continues in the rest: first over whole layers, then over the GEMMs of the layers found. The set at hand has always
been *seen* to cure. So an oracle that is not monotone (a larger set that does not cure) or a spent budget never makes the result wrong,
only larger than necessary.

*Source:* delta debugging, A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), with the bisection of
beginnings instead of ddmin's halves: for n candidates with k culprits, ddmin asks up to n² + 3n times, this search k (log2 n + 2) times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from numscope.records.words import count

Unit = tuple[str, str]  # a layer's name and one of its GEMMs, or sections.WHOLE for a layer that can't be divided
Units = tuple[Unit, ...]
Ending = Literal["found", "within", "incurable", "budget"]


class OutOfBudget(Exception):
    """Raised by an oracle that may not run once more."""


@dataclass(frozen=True, slots=True)
class SmallestSet:
    """The result of a search."""

    # ``found``: ``units`` cure, and none of them can be left out; ``within``: nothing has to be kept high; ``incurable``: not even all
    # units cure; ``budget``: the budget was spent before an answer
    outcome: Ending
    units: Units  # those to keep high, in the model's order; with ``budget`` the smallest set seen to cure, empty if there was none
    minimal: bool  # whether each unit was seen to be needed


def search(
    layers: Mapping[str, Sequence[str]],
    cures: Callable[[frozenset[Unit]], bool],
    *,
    suspects: Sequence[str] = (),
    stage: Callable[[str], None] = lambda text: None,
) -> SmallestSet:
    """The smallest set of units that cures, in the sense that no single one can be left out.

    Args:
        layers: for each layer, in the model's order, its GEMMs that are in low precision now.
        cures: whether the run is good with exactly these units kept high. It is called at most once for each set, and may raise
            ``OutOfBudget``.
        suspects: likely culprits, the most likely first. They are tried first, which affects the cost but not the answer.
        stage: called with a description of each stage.

    *Cost:* with k culprit GEMMs in m of n layers with g GEMMs each, at most ``2 + m (log2 n + 2) + k (log2 g m + 2)`` calls, if a larger
    set never cures less.
    """
    known = set(layers)
    first = [layer for layer in dict.fromkeys(suspects) if layer in known]
    ahead = set(first)
    order = [*first, *(layer for layer in layers if layer not in ahead)]
    asker = _Asker(cures)
    whole: dict[str, Units] = {layer: tuple((layer, gemm) for gemm in layers[layer]) for layer in order if layers[layer]}
    place = {unit: i for i, unit in enumerate((layer, gemm) for layer in layers for gemm in layers[layer])}
    everything = frozenset(place)

    def found(outcome: Ending, units: Iterable[Unit], minimal: bool) -> SmallestSet:
        return SmallestSet(outcome, tuple(sorted(units, key=place.__getitem__)), minimal)

    try:
        stage("the run as it is")
        if asker.cures(frozenset()):
            return found("within", (), True)
        stage("everything in high precision")
        if not everything or not asker.cures(everything):
            return found("incurable", (), False)
        stage("layers")
        few = _smallest(list(whole.values()), asker, gallop=bool(first))
        gemms: list[Units] = [(unit,) for group in few for unit in group]
        if len(gemms) > len(few):
            stage(f"GEMMs of {count(len(few), 'layer')}")
            few = _smallest(gemms, asker, gallop=False)
        return found("found", _union(few), True)
    except OutOfBudget:
        return found("budget", asker.best or (), False)


class _Asker:
    """Asks the oracle once about each set, and remembers the smallest that cures."""

    def __init__(self, cures: Callable[[frozenset[Unit]], bool]) -> None:
        self._cures = cures
        self._known: dict[frozenset[Unit], bool] = {}
        self.best: frozenset[Unit] | None = None

    def cures(self, kept: frozenset[Unit]) -> bool:
        if kept not in self._known:
            answer = self._known[kept] = self._cures(kept)
            if answer and (self.best is None or len(kept) < len(self.best)):
                self.best = kept
        return self._known[kept]


def _smallest(groups: list[Units], asker: _Asker, *, gallop: bool) -> list[Units]:
    """Groups that cure together, none of which can be left out. All groups together are known to cure."""
    kept: list[Units] = []
    rest = groups
    while not asker.cures(_union(kept)):
        # The first `low` groups of the rest do not cure, the first `high` do; both answers are the oracle's.
        low, high, leaps = 0, len(rest), gallop
        while high - low > 1:
            middle = min(2 * low or 1, high - 1) if leaps else (low + high) // 2
            if asker.cures(_union([*kept, *rest[:middle]])):
                high, leaps = middle, False
            else:
                low = middle
        kept.append(rest[high - 1])
        rest = rest[: high - 1]
    return _without_spare(kept, asker)


def _without_spare(kept: list[Units], asker: _Asker) -> list[Units]:
    """Leaves out groups one by one, until each is seen to be needed."""
    place = 0
    while place < len(kept):
        fewer = [*kept[:place], *kept[place + 1 :]]
        if asker.cures(_union(fewer)):
            kept, place = fewer, 0  # in a smaller set, other groups may be spare
        else:
            place += 1
    return kept


def _union(groups: Iterable[Units]) -> frozenset[Unit]:
    return frozenset(unit for group in groups for unit in group)
