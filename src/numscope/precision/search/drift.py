"""How far one run's loss is from another's."""

from __future__ import annotations

import math
from collections.abc import Sequence


def drift(losses: Sequence[float], reference: Sequence[float]) -> float:
    """How far a run's loss ended from a reference's: what their means over the last half of the steps differ by, as a part of the latter's.

    Args:
        losses: of each step.
        reference: the same steps of the other run, finite, at least one.

    Returns: 0.01 for one percent above, -0.01 for one below; infinity for a run that did not reach the reference's last step, or that
        has a loss which is not finite.
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
    """The largest drift of repeated runs of the same from the first of them; 0 for a run that repeats itself bitwise."""
    return max((abs(drift(run, runs[0])) for run in runs[1:]), default=0.0)
