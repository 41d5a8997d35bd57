"""Overflow ahead: a tensor's largest element grows towards the end of its dtype's range.

The trend is a straight line through its level (log2 of the largest magnitude) over the last steps, the smaller one of the whole and of its
later half: a tensor that has grown and stands still, or one that jumps to and fro, is no news.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from numscope.alerts.board import TICK, Board, SiteKind, magnitude
from numscope.records.alert import Alert

NAME = "overflow ahead"
WINDOW = 32  # steps
UNSURE = 2  # times as far as at the earliest: a line that says no more asks
_ADVICE = "Lower the learning rate, clip gradients, or normalize what this layer is given."
_ADVICE_HALF = "Lower the learning rate, train in bfloat16, or compute this layer in float32 (numscope.high_precision)."
SEEN = (SiteKind.OUTPUT, SiteKind.MATRIX, SiteKind.VECTOR)  # gradients under a GradScaler overflow now and then, as they should


def overflow_ahead(board: Board, settings: dict[str, Any]) -> Iterator[Alert]:
    """The trend of a site reaches its dtype's limit within some steps."""
    steps = board.window(WINDOW, 16)
    if not steps:
        return
    limits = board.limits
    room = limits - board.level
    seen = board.of(*SEEN)
    near = seen[((room <= settings["bits"]) & (room >= 0) & (board.ages > steps * 5 / 4))[seen]]
    if not len(near):
        return
    trail = board.trail(steps)[:, near]
    times = np.arange(-steps, TICK, TICK, dtype=float)
    slope, error, end = _line(times, trail)
    half = len(times) // 2
    later, _, _ = _line(times[half:], trail[half:])
    left = limits[near] - np.maximum(end, board.level[near])
    with np.errstate(divide="ignore", invalid="ignore"):
        eta = left / np.minimum(slope, later)
        least = left / (np.maximum(slope, later) + 2 * error)
    rising = (slope > 3 * error) & (later > 0) & (eta <= settings["steps"])
    for i in np.flatnonzero(rising)[np.argsort(eta[rising], kind="stable")][: settings["most"]]:
        dtype = board.places[near[i]].dtype
        far, soon = (max(1, int(steps)) for steps in (eta[i], least[i]))
        now, end_of_range = magnitude(float(board.level[near[i]])), magnitude(float(limits[near[i]]))
        yield board.alert(
            NAME,
            int(near[i]),
            now,
            end_of_range,
            f"the largest element, {now:.3g}, grows by {2 ** (10 * float(slope[i])) - 1:.0%} in 10 steps: it leaves {dtype} "
            f"({end_of_range:.5g}) in about {far} steps, {soon} at the earliest.",
            _ADVICE_HALF if dtype == "float16" else _ADVICE,
            asks=soon * UNSURE < far,
            bits_a_step=round(float(slope[i]), 4),
            error=round(float(error[i]), 4),
            steps_left=far,
        )


def _line(times: np.ndarray[Any, Any], levels: np.ndarray[Any, Any]) -> tuple[Any, Any, Any]:
    """Straight lines through columns: slope, its standard error, and the value at the end."""
    center = times - times.mean()
    spread = float(center @ center)
    slope = center @ levels / spread
    mean = levels.mean(0)
    rest = levels - mean - np.outer(center, slope)
    error = np.sqrt((rest * rest).sum(0) / (len(times) - 2) / spread)
    return slope, error, mean + slope * center[-1]
