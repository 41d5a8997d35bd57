"""Steps that GradScaler skips: how many in a row, and how many of them a scale that is too high explains."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch.optim import Optimizer

from numscope.probe import optimizer as optimizer_probe
from numscope.probe.living import Beside


@dataclass(slots=True)
class _Row:
    """Steps in a row of one optimizer.

    Args:
        of_search: how many of the first ones the search for a scale explains.
        counted: those that nothing explains.
    """

    of_search: int
    num: int = 0
    counted: int = 0


LEFT_OUT = "GradScaler left this step out"  # what a note of a bad forward says
OURS = "numscope left this step out"
MOST_IN_A_ROW = 10  # left out by numscope, or made though the loss is bad; the next one is a finding, as without the option


class Skips:
    """Counts each optimizer's skipped steps.

    Before the first step that it does not skip, a scaler searches for its scale: the skips that lead from its first scale to one below 1 do
    not count then. Neither does a scale that stays where it is explain more: a scaler that is made anew in each step, or given its scale.

    Args:
        leaves_out: numscope leaves steps out too.

    Attributes:
        most: how many that count are a finding; None: no number.
        steps: numbers of the steps that were left out, whoever did it.
        has_stepped: a step was not left out.
    """

    def __init__(self, leaves_out: bool = False) -> None:
        self._leaves_out = leaves_out
        self.most: int | None = None
        self.steps: list[int] = []
        self.has_stepped = False
        self._rows: Beside[Optimizer, _Row] = Beside()
        self._have_stepped: Beside[Optimizer, bool] = Beside()
        self._gone_on = (-1, 0)  # the last step that was made though its loss was bad, and how many in a row

    def stepped(self, optimizer: Optimizer) -> None:
        """A step was not skipped."""
        self._rows.pop(optimizer, None)
        self._have_stepped[optimizer] = self.has_stepped = True

    def left_out(self, optimizer: Optimizer) -> int:
        """A step is to be left out for a gradient that is not finite, not by a scaler. Returns: how many in a row."""
        row = self._rows.setdefault(optimizer, _Row(0))
        row.num += 1
        return row.num

    def goes_on(self, step: int) -> bool:
        """Whether a step may be made whose gradients are finite and whose loss is not: where others are left out, some in a row."""
        last, num = self._gone_on
        if step != last:
            self._gone_on = step, num + 1 if step == last + 1 else 1
        return self._leaves_out and self._gone_on[1] <= MOST_IN_A_ROW

    def forget(self) -> None:
        """Begin to count anew: the cause of the bad steps is gone."""
        self._rows = Beside()

    def skipped(self, optimizer: Optimizer, forward_is_bad: bool) -> tuple[int, int]:
        """A step was skipped.

        Args:
            forward_is_bad: which no scale explains.

        Returns: how many in a row, and how many of them count.
        """
        scale = optimizer_probe.scale()
        row = self._rows.get(optimizer)
        if row is None:
            row = self._rows[optimizer] = _Row(0 if optimizer in self._have_stepped else _num_above_one(scale))
        row.num += 1
        row.counted += row.num > row.of_search or forward_is_bad or scale is None or scale < 1
        return row.num, row.counted


def _num_above_one(scale: float | None) -> int:
    """How many skips lead below 1 from a scale: its exponent and one, where each halves it."""
    if scale is None or not 1 <= scale < math.inf:
        return 0
    return 1 + int(math.log2(scale) / -math.log2(optimizer_probe.backoff()))
