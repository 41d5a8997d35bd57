"""Gradients that vanish or explode: through the depth of the model, or from step to step.

What counts is a gradient beside the weight that it is to change: the gap of their levels (log2 of the largest magnitudes). It differs
between layers of healthy models by a few bits, not by twenty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from numscope.alerts.board import Board, SiteKind, magnitude, median
from numscope.records.alert import Alert

VANISH, EXPLODE = "gradients vanish", "gradients explode"
WINDOW = 32  # steps
LEAST_LAYERS = 6  # of which a depth is made


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
    yield board.alert(
        VANISH,
        least,
        round(fall, 1),
        settings["bits"],
        f"beside their weights, the first layers' gradients are 2^{fall:.0f} times smaller than the last ones'; the largest element here "
        f"is {magnitude(float(level[least])):.3g}.",
        "Add residual connections or normalization, change the initialization, or use an activation that does not saturate.",
        layers=len(pairs),
    )


def gradients_from_step_to_step(board: Board, settings: dict[str, Any]) -> Iterator[Alert]:
    """Most weights' gradients have grown by many bits within some steps."""
    steps = board.window(WINDOW)
    gradients = board.of(SiteKind.WEIGHT_GRADIENT)
    if not steps or not len(gradients):
        return
    bits = board.smooth() - board.smooth(steps)
    bits[board.growth(steps)[0] <= 0] = 0.0  # no larger than they once were: after the fit of one task, as those of the next
    known = gradients[np.isfinite(bits[gradients])]
    if not len(known):
        return
    value = float(median(bits[known]))
    if value < settings["bits"]:
        return
    lead = int(known[int(np.argmax(bits[known]))])
    yield board.alert(
        EXPLODE,
        lead,
        round(value, 1),
        settings["bits"],
        f"half of the weights' gradients have grown by 2^{value:.0f} and more in {steps} steps, this one to "
        f"{magnitude(float(board.smooth()[lead])):.3g}.",
        "Clip gradients, lower the learning rate, or look at the data of these steps.",
        steps=steps,
    )
