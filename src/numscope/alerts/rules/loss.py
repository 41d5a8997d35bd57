"""Loss spike: the loss leaves the band of its last values upward. Loss runs away: it goes up, slowly, to above where it began."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from numscope.alerts.board import Board, Floats, SiteKind, Spike, median, question
from numscope.probe import loop_calls
from numscope.records.alert import Alert
from numscope.records.words import count

NAME = "loss spike"
WINDOW = 64  # steps of the band
LAST = 3  # steps, two of which must be above it
AT_ONCE = 4.0  # times as far, where one is enough
ROBUST = 1.4826  # times the median absolute deviation: a normal distribution's standard deviation
LEAST_SHARE = 0.05  # of the median: narrower bands are widened to this, as near a loss of zero
LEAST_OF_FIRST = 0.02  # of the first steps' loss, the same
GONE = 0.125  # of it, where the loss has all but gone, to below ``LEAST_OF_FIRST``: it may come back to where it began (rare rewards)
WIDE = 0.5  # of the median: losses that deviate further, as an agent's do, have spikes of their own
EARLY = 4.0  # times the first steps' loss: a rise that is news before the window is full
MOST_NAMED = 3
SCALED = 2.0  # of the median: losses are divided by GradScaler's scale, which doubles, also one that was not scaled
LEAST = WINDOW // 2  # losses, from which on rises are counted
MEMORY = 1000  # steps in which they are
OFTEN = 2  # rises in these, which make the height of the second highest usual
FURTHER = 1.5  # times what is usual: a rise that is news
SOON = 16  # steps, within which a loss that comes down has done so by itself
AWAY = "loss runs away"
PARTS = 4  # in a row, the median of each higher, or lower, than that of the one before
PART, SHORT = 16, 8  # losses in one
LEAST_RISE, LEAST_SHORT_RISE = 1.2, 1.6  # times, in these
LEAST_GOES_ON = 1.2  # of the second of four short ones: a loss that has jumped once does not run


def loss_spike(board: Board, settings: dict[str, Any]) -> Iterator[Alert]:
    """A loss far above the median of the last steps, in units of their median deviation, and above what it often rises to; and one that has
    come down again."""
    yield from _comes_down(board)
    if len(board.losses) < LEAST + LAST or not math.isfinite(board.losses[-1]):
        return
    losses = np.array(board.losses)
    past = losses[-WINDOW - LAST : -LAST]
    past = past[np.isfinite(past)]
    if len(past) < LEAST or not board.first_loss > 0 or 2 * np.count_nonzero(past) <= len(past):  # zeros, as before a reward: no band
        return
    middle = float(median(past))
    is_gone = abs(middle) < LEAST_OF_FIRST * board.first_loss
    deviation = ROBUST * float(median(np.abs(past - middle)))
    width = max(deviation, LEAST_SHARE * abs(middle), (GONE if is_gone else LEAST_OF_FIRST) * board.first_loss)
    if board.is_scaled:
        width = max(width, SCALED * abs(middle) / settings["band"])
    value, limit = float(losses[-1]), middle + settings["band"] * width
    if value <= limit:
        return
    highest, usual = _known(board, value - middle)
    if board.step < board.quiet_until:
        return
    is_early = len(board.losses) < WINDOW + LAST
    if is_early and value < EARLY * board.first_loss:
        return
    before = float(past.max()) - middle
    limit = max(limit, middle + FURTHER * max(usual, before))
    at_once = middle + max(AT_ONCE * settings["band"] * width, FURTHER * max(highest, before))
    above = int((losses[-LAST:] > limit).sum())
    if value <= limit or ((above < 2 or is_early) and value <= at_once):
        return
    jump = board.jump()
    named = [*dict.fromkeys(board.places[i].layer or board.places[i].tensor for i in _largest(jump, board.of(SiteKind.WEIGHT_GRADIENT)))][
        :MOST_NAMED
    ]
    odd = [*dict.fromkeys(board.places[i].tensor for i in _largest(jump, board.of(SiteKind.DATA)))][:MOST_NAMED]
    if above < 2 and not (named or odd) and len(board.of(SiteKind.WEIGHT_GRADIENT)):
        return  # one loss of odd labels, whose gradient is clipped, moves nothing
    more = f" Gradients that jumped with it: {', '.join(named)}." if named else ""
    more += " The batch is odd: its largest element is more than twice what it was." if odd else ""
    text = f"{value:.4g}, where the last {len(past)} steps had {middle:.4g} ± {width:.2g} (median, deviation).{more}"
    advice = "Look at this step's batch" + ("" if loop_calls.clips() else "; clip gradients")
    advice += "." if odd else "; if spikes come again, lower the learning rate or Adam's beta2."
    about = {"median": middle, "deviation": width, "gradients": named, "odd_inputs": odd}
    asks = is_early or is_gone or deviation > WIDE * middle
    if asks:
        advice = question(NAME, advice)
    else:
        board.spike = board.spike or Spike(board.step, limit, middle, value)
    yield Alert(board.step, NAME, "", "loss", value, limit, text, advice, about, asks=asks)


def _comes_down(board: Board) -> Iterator[Alert]:
    """A loss that is no longer above the limit of the spike that was told."""
    spike, value = board.spike, board.losses[-1] if board.losses else math.nan
    if spike is None or math.isnan(value):
        return
    board.spike = spike._replace(highest=max(spike.highest, value)) if value > spike.limit else None
    if board.spike is None and board.step - spike.step <= SOON:
        times = f"highest {spike.highest / spike.median:.3g} times the median" if spike.median > 0 else f"highest {spike.highest:.4g}"
        text = f"It came down by itself after {count(board.step - spike.step, 'step')}, {times}."
        yield Alert(board.step, NAME, "", "loss", value, spike.limit, text, evidence={"over": True, "highest": spike.highest})


def loss_runs_away(board: Board, settings: dict[str, Any]) -> Iterator[Alert]:
    """A loss that goes up for 64 steps, or far within 32, to above its first values, or below zero faster and faster. An agent's may be
    meant to."""
    is_long = len(board.losses) >= (PARTS + 1) * PART and not board.num_steps % PART
    for part, rise in ((PART, LEAST_RISE), (SHORT, LEAST_SHORT_RISE)):
        if len(board.losses) < PARTS * part or (part == PART and not is_long):
            continue
        parts = median(np.array(board.losses)[-PARTS * part :].reshape(PARTS, part).T)
        first, last, steps = float(parts[0]), float(parts[-1]), np.diff(parts)
        limit = settings["times"] * board.first_loss
        up = last > limit > 0 and last > rise * first > 0 and bool((steps > 0).all())  # nor where one is nan
        up = up and (part == PART or last > LEAST_GOES_ON * float(parts[1]))
        down = first < -limit < 0 and last < settings["times"] * first and bool((steps < 0).all() and (np.diff(steps) < 0).all())
        if not (up or (down and part == PART)):
            continue
        goes = "up" if up else "down, faster and faster,"
        cause = "a part of the loss whose sign is wrong, or without bound"
        why = "Lower the learning rate, or go back to before it rose." if up else f"Look for {cause}."
        text = f"{last:.4g} in the median of {part} steps, {goes} from {first:.4g} in {PARTS * part} steps"
        text += f"; it began at {board.first_loss:.4g}."
        about = {"medians": [float(each) for each in parts], "first": board.first_loss}
        yield Alert(board.step, AWAY, "", "loss", last, limit if up else -limit, text, question(AWAY, why), about, asks=True)
        return


def _known(board: Board, height: float) -> tuple[float, float]:
    """How far the highest and the ``OFTEN`` highest of earlier rises came: 0 where there is none. Notes the present one.

    A batch of few samples, a few wrong labels, tasks in turn, targets that are renewed: such losses rise far, and come back at once.
    """
    rises = board.rises
    if rises and rises[-1][0] == board.step - 1:
        height = max(height, rises.pop()[1])
    known = sorted((one for step, one in rises if step > board.step - MEMORY), reverse=True)
    rises.append((board.step, height))
    return (known[0] if known else 0.0), (known[OFTEN - 1] if len(known) >= OFTEN else 0.0)


def _largest(jump: Floats, among: npt.NDArray[np.int64]) -> list[int]:
    """The sites that have grown most in this step, by a factor of two at least."""
    order = among[np.argsort(-np.nan_to_num(jump[among]), kind="stable")]
    return [int(i) for i in order if jump[i] > 1]
