"""Loss spike: the loss leaves the band of its last values upward."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from numscope.alerts.board import Board, Floats, Kind, median
from numscope.records.alert import Alert

NAME = "loss spike"
WINDOW = 64  # steps of the band
LAST = 3  # steps, two of which must be above it
AT_ONCE = 4.0  # times as far, where one is enough
ROBUST = 1.4826  # times the median absolute deviation: a normal distribution's standard deviation
LEAST_SHARE = 0.05  # of the median: narrower bands are widened to this, as near a loss of zero
LEAST_OF_FIRST = 0.02  # of the first steps' loss, the same
MOST_NAMED = 3


def loss_spike(board: Board, settings: dict[str, Any]) -> Iterator[Alert]:
    """A loss far above the median of the last steps, in units of their median deviation."""
    if len(board.losses) < WINDOW + LAST or not math.isfinite(board.losses[-1]):
        return
    losses = np.array(board.losses)
    past = losses[-WINDOW - LAST : -LAST]
    past = past[np.isfinite(past)]
    if len(past) < WINDOW // 2:
        return
    middle = float(median(past))
    width = max(ROBUST * float(median(np.abs(past - middle))), LEAST_SHARE * abs(middle), LEAST_OF_FIRST * board.first_loss)
    value, limit = float(losses[-1]), middle + settings["band"] * width
    above = int((losses[-LAST:] > limit).sum())
    if value <= limit or (above < 2 and value <= middle + AT_ONCE * settings["band"] * width):
        return
    jump = board.jump()
    named = [board.places[i].layer for i in _largest(jump, board.of(Kind.WEIGHT_GRADIENT))]
    odd = [board.places[i].tensor for i in _largest(jump, board.of(Kind.DATA))]
    more = f" Gradients that jumped with it: {', '.join(named)}." if named else ""
    more += " The batch is odd: its largest element is more than twice what it was." if odd else ""
    yield Alert(
        board.step,
        NAME,
        "",
        "loss",
        value,
        limit,
        f"{value:.4g}, where the last {len(past)} steps had {middle:.4g} ± {width:.2g} (median, deviation).{more}",
        "Look at this step's batch; clip gradients; if spikes come again, lower the learning rate or Adam's beta2.",
        {"median": middle, "deviation": width, "gradients": named, "odd_inputs": odd},
    )


def _largest(jump: Floats, among: npt.NDArray[np.int64]) -> list[int]:
    """The sites that have grown most in this step, by a factor of two at least."""
    order = among[np.argsort(-np.nan_to_num(jump[among]), kind="stable")]
    return [int(i) for i in order[:MOST_NAMED] if jump[i] > 1]
