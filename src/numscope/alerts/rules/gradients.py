"""Gradients that vanish through the depth of the model, and such as float16 has no room for.

What counts is a gradient beside the weight that it is to change: the gap of their levels (log2 of the largest magnitudes). It differs
between layers of healthy models by a few bits, not by twenty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from numscope.alerts.board import Board, SiteKind, magnitude, median
from numscope.records.alert import Alert

VANISH, UNDERFLOW = "gradients vanish", "gradients underflow"
WINDOW = 32  # steps
LEAST_LAYERS = 6  # of which a depth is made
HALF_RANGE = 16.0  # log2 of the end of float16's range
HALF_NORMAL = -14.0  # of its smallest normal number: below it each bit less is a bit of the significand


def gradients_through_depth(board: Board, settings: dict[str, Any]) -> Iterator[Alert]:
    """The first layers' gradients are smaller than the last ones' by many bits."""
    if not board.window(WINDOW):
        return
    pairs = board.matrices_with_gradients()
    if len(pairs) < LEAST_LAYERS:
        return
    level = board.smooth()
    gap = level[pairs[:, 0]] - level[pairs[:, 1]]
    gap, pairs = gap[np.isfinite(gap)], pairs[np.isfinite(gap)]
    third = len(pairs) // 3
    if not third:
        return
    fall = float(median(gap[-third:]) - median(gap[:third]))
    if fall < settings["bits"]:
        return
    least = int(pairs[int(np.argmin(gap))][0])
    text = f"beside their weights, the first layers' gradients are 2^{fall:.0f} times smaller than the last ones'; the largest element "
    text += f"here is {magnitude(float(level[least])):.3g}."
    advice = "Add residual connections or normalization, change the initialization, or use an activation that does not saturate."
    yield board.alert(VANISH, least, round(fall, 1), settings["bits"], text, advice, asks=True, layers=len(pairs))


def gradients_underflow(board: Board, settings: dict[str, Any]) -> Iterator[Alert]:
    """Most float16 gradients of outputs have no element that is a normal number, over many steps."""
    gradients = board.of(SiteKind.GRADIENT)
    half = gradients[np.rint(board.limits[gradients]) == HALF_RANGE]
    if not board.window(WINDOW) or not len(half):
        return
    level = board.smooth()[half]
    low = half[level < HALF_NORMAL]
    if 2 * len(low) <= len(half):
        return
    least = int(half[int(np.nanargmin(level))])
    largest = magnitude(float(board.smooth()[least]))
    normal = magnitude(HALF_NORMAL)
    text = f"the largest element is {largest:.2g}, below float16's smallest normal number {normal:.2g}, as in {len(low)} of {len(half)} "
    text += "gradients: they keep few bits, and elements below 6e-08 are zero."
    yield board.alert(UNDERFLOW, least, largest, normal, text, "Scale the loss (GradScaler), or use bfloat16.", asks=True, layers=len(low))
