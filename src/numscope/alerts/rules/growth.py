"""Divergence ahead: weights that grow faster than steps of one size can make them grow.

Where an optimizer takes steps of one size, a weight grows at most as fast as their number, t^1, and as t^0.5 where the steps have no common
direction. The exponent is taken from two levels 64 steps apart, so it needs no unit and no calibration. The matrices' median mostly stayed
below 1 on healthy runs, and was 0.8 to 5 some 30 to 100 steps before runs diverged, well before outputs and gradients left their band.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from numscope.alerts.board import TICK, Board, Floats, SiteKind, magnitude, median
from numscope.alerts.desk import CALM_STEPS
from numscope.probe import loop_calls
from numscope.records.alert import Alert

NAME = "divergence ahead"
WINDOW = 64  # steps
LONG = 128  # steps, over which the layer that leads is looked for
FEW = 12  # matrices, below which one of them moves the median
EARLY = 192  # steps in which a model leaves its initial weights, and rates warm up

# Of the median exponent of the matrices and half their ninth decile's; beside it, the bits that the median has grown: below, it is noise.
MANY_LIMIT, FEW_LIMIT, EARLY_LIMIT, LEAST_BITS = 1.9, 2.9, 2.4, 0.3
# The ninth decile alone, where outputs grow with it: of the matrices, its bits, of the outputs.
NINTH_LIMIT, NINTH_BITS, NINTH_OUTPUTS = 1.6, 0.35, 2.0
BEHIND = 1.0  # bits, by which another layer must have grown more to be named in a layer's place
LEARNS = 0.5  # of the loss a window ago: weights that grow while it falls below this are what lowers it, however fast they grow
ROSE = 1.1  # times: a learning rate that has risen
LEAST_OUTPUTS = 1.0  # of the outputs' ninth decile: where no output grows, weights may


def divergence_ahead(board: Board, settings: dict[str, Any]) -> Iterator[Alert]:
    """Weights and outputs of many layers grow ever faster."""
    steps = board.window(WINDOW)
    if not steps:
        return
    bits, exponent = board.growth(steps)
    matrices, outputs = (found[np.isfinite(exponent[found])] for found in (board.of(SiteKind.MATRIX), board.of(SiteKind.OUTPUT)))
    matrices = matrices[board.moved[matrices]]  # others are frozen
    if not board.from_zero[matrices].all():
        matrices = matrices[~board.from_zero[matrices]]  # these grow beyond any power of the steps as the layers behind them wake
    if not len(matrices):
        return
    middle, ninth = median(exponent[matrices]), _ninth(exponent[matrices])
    is_few, is_early = len(matrices) < FEW, median(board.ages[matrices].astype(float)) < EARLY
    if (middle + ninth / 2 < settings["limit"] * MANY_LIMIT and ninth < settings["limit"] * NINTH_LIMIT) or _learns(board):
        return
    ahead = _ninth(board.growth(steps, record=False)[1][outputs]) if len(outputs) else NINTH_OUTPUTS
    value = float(middle + ninth / 2)
    limit = settings["limit"] * (FEW_LIMIT if is_few else EARLY_LIMIT if is_early else MANY_LIMIT)
    if value < limit or median(bits[matrices]) < LEAST_BITS or ahead < LEAST_OUTPUTS:
        value, limit = float(ninth), settings["limit"] * NINTH_LIMIT
        if is_few or is_early or value < limit or _ninth(bits[matrices]) < NINTH_BITS or ahead < NINTH_OUTPUTS:
            return
    shown = outputs if len(outputs) else matrices
    long = board.window(LONG)
    grown = (board.smooth() - board.smooth(long))[shown]
    order = np.argsort(-np.nan_to_num(grown, nan=-np.inf), kind="stable")
    lead = _leader(board, int(shown[order[0]]), dict(zip(shown.tolist(), grown.tolist(), strict=True)))
    before, after = (magnitude(float(level[lead])) for level in (board.smooth(long), board.smooth()))
    named = {
        " ".join(filter(None, (board.places[shown[i]].layer, board.places[shown[i]].tensor))): round(float(grown[i]), 2) for i in order[:5]
    }
    measured, advice, seen = _beside(board, long)
    yield board.alert(
        NAME,
        lead,
        round(value, 2),
        round(limit, 2),
        f"weights grow ever faster, like steps^{float(middle):.1f} and the fastest tenth like steps^{float(ninth):.1f} (equal steps give "
        f"at most steps^1); the largest element here went from {before:.3g} to {after:.3g} in {long} steps.{measured}",
        advice,
        asks=is_few or is_early,
        bits=named,
        steps=long,
        matrices=len(matrices),
        median_exponent=round(float(middle), 2),
        ninth_decile=round(float(ninth), 2),
        **seen,
    )


def _learns(board: Board) -> bool:
    """Whether the loss has come down over the window, from the median of its first quarter to that of its last."""
    losses = np.array(board.losses)[-WINDOW:]
    losses = losses[np.isfinite(losses)]
    part = len(losses) // 4
    return len(losses) >= WINDOW // 2 and 0 < float(median(losses[-part:])) < LEARNS * float(median(losses[:part]))


def _beside(board: Board, steps: int) -> tuple[str, str, dict[str, Any]]:
    """Measurements beside the growth in these steps: a sentence, the advice that follows from it, and evidence."""
    before, after = (board.rates[at] if len(board.rates) >= -at else np.nan for at in (-1 - steps // TICK, -1))
    rate = {"learning_rate": [float(before), float(after)]} if after == after and before == before else {}
    inputs = board.of(SiteKind.DATA)
    grown = np.nan_to_num((board.smooth() - board.smooth(steps))[inputs], nan=-np.inf)
    also = "" if loop_calls.clips() else " Nothing clips gradients."
    if len(inputs) and grown.max() > 1:
        at = int(inputs[int(grown.argmax())])
        sizes = [magnitude(float(level[at])) for level in (board.smooth(steps), board.smooth())]
        text = f" The largest element of {board.places[at].tensor} went from {sizes[0]:.3g} to {sizes[1]:.3g}.{also}"
        return text, "Look at the data of these steps: the model is called with ever larger numbers.", {"inputs": sizes, **rate}
    clip = "" if loop_calls.clips() else "; clip gradients"
    if not rate:
        return also, f"Lower the learning rate or lengthen its warm-up{clip}.", {}
    if after > ROSE * before:
        text = f" The learning rate rose from {before:.3g} to {after:.3g}.{also}"
        return text, f"Let the learning rate rise no further than {before:.3g}, or lengthen its warm-up{clip}.", rate
    return f" The learning rate is {after:.3g}.{also}", f"Lower the learning rate from {after:.3g}{clip}.", rate


def _ninth(values: Floats) -> float:
    """The ninth decile, rounded up to one of the values."""
    at = len(values) * 9 // 10
    return float(np.partition(values, at)[at])


def _leader(board: Board, first: int, grown: dict[int, float]) -> int:
    """The site that has grown most; the one that was named last stays unless it is behind by ``BEHIND``."""
    named = board.named.get(NAME)
    if named is None or board.step - named[1] > CALM_STEPS or grown[first] - grown.get(named[0], -np.inf) > BEHIND:
        named = first, board.step
    board.named[NAME] = named[0], board.step
    return named[0]
