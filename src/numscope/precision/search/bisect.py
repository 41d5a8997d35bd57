"""The search for the smallest set of GEMMs whose high precision cures a run, over any oracle that says whether a set does.

Nothing here runs a model. An answer of the oracle is one short training run, so that the only cost is how often it is asked.

One culprit at a time: of an ordered list of candidates that cures as a whole, a bisection of its beginnings finds two neighbors of
which the longer cures and the shorter does not. The element between them is kept; what came after it is not needed; the rest is
searched on. First over whole layers, then over the GEMMs of those found. At each moment the set at hand is one that has been *seen* to
cure, so that neither an oracle that is not monotone (a larger set that cures no more) nor an empty budget makes the result wrong: only
larger than it need be.

*Source:* delta debugging, A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), with the bisection of
beginnings in place of ddmin's halves: of n candidates with k culprits, ddmin asks up to n² + 3n times, this k (log2 n + 2) times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Unit = tuple[str, str]  # a layer's name and one of its GEMMs; keeping.WHOLE where it can't be divided
Outcome = Literal["found", "within", "incurable", "budget"]


class OutOfBudget(Exception):
    """Raised by an oracle that may not run once more."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to.

    Args:
        outcome: ``found``: ``units`` cure, and no single one of them can be left out; ``within``: nothing has to be kept high;
            ``incurable``: not even all of them cure; ``budget``: the oracle ran out before an answer.
        units: kept high, in the model's order; with ``budget`` the smallest set seen to cure, empty where none was.
        minimal: whether each single unit was seen to be needed.
        num_asked: how often the oracle was asked.
    """

    outcome: Outcome
    units: tuple[Unit, ...]
    minimal: bool
    num_asked: int


Group = tuple[Unit, ...]


def search(
    layers: Mapping[str, Sequence[str]],
    cures: Callable[[frozenset[Unit]], bool],
    *,
    suspects: Sequence[str] = (),
    stage: Callable[[str], None] = lambda text: None,
) -> Found:
    """The smallest set of units that cures, as far as leaving out single ones can tell.

    Args:
        layers: for each layer, in the model's order, its GEMMs that are in low precision now.
        cures: whether the run is good with exactly these units kept high; asked at most once about a set. May raise ``OutOfBudget``.
        suspects: layers that are likely culprits, the likeliest first; looked at before the others. They decide how often the oracle
            is asked, never what a right answer is.
        stage: told what is sought now.

    Returns: what was found. An oracle that runs out of budget is an outcome, no error.

    *Cost:* with k culprit GEMMs in m of n layers and an oracle for which a larger set never cures less, at most ``most_asked``.
    """
    known = set(layers)
    first = [layer for layer in dict.fromkeys(suspects) if layer in known]
    ahead = set(first)
    order = [*first, *(layer for layer in layers if layer not in ahead)]
    asker = _Asker(cures)
    whole: dict[str, Group] = {layer: tuple((layer, gemm) for gemm in layers[layer]) for layer in order if layers[layer]}
    place = {unit: i for i, unit in enumerate((layer, gemm) for layer in layers for gemm in layers[layer])}
    everything = frozenset(place)

    def found(outcome: Outcome, units: Iterable[Unit], minimal: bool) -> Found:
        return Found(outcome, tuple(sorted(units, key=place.__getitem__)), minimal, asker.num_asked)

    try:
        stage("the run as it is")
        if asker.cures(frozenset()):
            return found("within", (), True)
        stage("everything in high precision")
        if not everything or not asker.cures(everything):
            return found("incurable", (), False)
        stage("layers")
        few = _smallest(list(whole.values()), asker, gallop=bool(first))
        gemms: list[Group] = [(unit,) for group in few for unit in group]
        if len(gemms) > len(few):
            stage(f"GEMMs of {_counted(len(few), 'layer')}")
            few = _smallest(gemms, asker, gallop=False)
        return found("found", _union(few), True)
    except OutOfBudget:
        return found("budget", asker.best or (), False)


def most_asked(num_layers: int, num_gemms: int, num_culprit_layers: int, num_culprits: int) -> int:
    """How often ``search`` asks at most, of an oracle for which a larger set never cures less.

    Args:
        num_layers: layers to search.
        num_gemms: GEMMs of each.
        num_culprit_layers: layers with a culprit.
        num_culprits: GEMMs that must be kept high.
    """
    level = num_culprit_layers * (_log2(num_layers) + 2)
    return 2 + level + num_culprits * (_log2(num_gemms * num_culprit_layers) + 2)


def _log2(number: int) -> int:
    """Rounded up."""
    return max(number - 1, 0).bit_length()


class _Asker:
    """Asks once about a set, and remembers the smallest that cures."""

    def __init__(self, cures: Callable[[frozenset[Unit]], bool]) -> None:
        self._cures = cures
        self._known: dict[frozenset[Unit], bool] = {}
        self.best: frozenset[Unit] | None = None
        self.num_asked = 0

    def cures(self, kept: frozenset[Unit]) -> bool:
        if kept not in self._known:
            answer = self._cures(kept)
            self.num_asked += 1
            self._known[kept] = answer
            if answer and (self.best is None or len(kept) < len(self.best)):
                self.best = kept
        return self._known[kept]


def _smallest(groups: list[Group], asker: _Asker, *, gallop: bool) -> list[Group]:
    """Groups that cure together and of which none can be left out; all together are known to cure."""
    kept: list[Group] = []
    rest = groups
    while not asker.cures(_union(kept)):
        # With the first `low` of the rest it does not cure, with the first `high` it does: both were asked.
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


def _without_spare(kept: list[Group], asker: _Asker) -> list[Group]:
    """Leaves out what can be, one by one, until each is seen to be needed."""
    place = 0
    while place < len(kept):
        fewer = [*kept[:place], *kept[place + 1 :]]
        if asker.cures(_union(fewer)):
            kept, place = fewer, 0  # of a smaller set others may be spare
        else:
            place += 1
    return kept


def _union(groups: Iterable[Group]) -> frozenset[Unit]:
    return frozenset(unit for group in groups for unit in group)


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
