"""How far one run's loss is from another's."""

from __future__ import annotations

import math
from collections.abc import Sequence


def drift(losses: Sequence[float], reference: Sequence[float]) -> float:
    """The relative difference of the mean losses of two runs over the second half of the steps.

    It is 0.01 for one percent above the reference, whose losses are finite; infinity if the run ended before the reference did, or has a
    loss that is not finite.
    """
    if len(losses) < len(reference) or not all(map(math.isfinite, losses)):
        return math.inf
    half = len(reference) // 2
    mine, theirs = losses[half : len(reference)], reference[half:]
    scale = math.fsum(map(abs, theirs)) / len(theirs)
    difference = (math.fsum(mine) - math.fsum(theirs)) / len(theirs)
    if difference == 0:
        return 0.0
    return difference / scale if scale else math.copysign(math.inf, difference)


def noise(runs: Sequence[Sequence[float]]) -> float:
    """The largest drift among repeated runs, from the first of them; 0 if the runs repeat bitwise."""
    return max((abs(drift(run, runs[0])) for run in runs[1:]), default=0.0)
