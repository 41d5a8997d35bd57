"""An optimizer keeps what it has learned from step to step."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from torch.optim import Optimizer

from numscope.alerts.checks.protocol import NONE, Check, Subject
from numscope.alerts.checks.where import UNKNOWN, Line, current_line
from numscope.probe.calls import in_backward
from numscope.records.alert import Alert

LEAST_STEPS = 4  # in a row that begin with empty states


class LostState(Check):
    """Steps in a row that each begin with an optimizer without states and end with one that has some.

    *Cost:* 1 µs an optimizer's step.
    """

    name = "optimizer state lost"
    cheap = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._last: weakref.ref[Optimizer] | None = None
        self._is_empty: bool | None = None  # each optimizer of the step had no states before it, and has some now; None: none stepped
        self._is_other = False  # and is another one than in the step before
        self._before: bool = False
        self._in_row = 0
        self._anew = 0
        self._line: Line = UNKNOWN
        self._said = False

    def before_step(self, optimizer: Optimizer) -> Iterable[Alert]:
        self._before = not optimizer.state
        if self._in_row == LEAST_STEPS - 1:
            self._line = current_line()
        return NONE

    def after_step(self, optimizer: Optimizer) -> Iterable[Alert]:
        self._is_empty = self._is_empty is not False and self._before and bool(optimizer.state)
        self._is_other = self._last is None or self._last() is not optimizer
        self._last = weakref.ref(optimizer)
        return NONE

    def end(self, closing: bool) -> Iterable[Alert]:
        last = None if self._last is None else self._last()
        empty, self._is_empty = self._is_empty, None
        if self._said or last is None or empty is None:  # loss scaling leaves steps out
            return NONE
        lost = empty and not in_backward()
        self._in_row = self._in_row + 1 if lost else 0
        self._anew = self._anew + 1 if lost and self._is_other else 0
        if self._in_row < LEAST_STEPS:
            return NONE
        self._said = True
        kind = type(last).__name__
        how = f"a new {kind} is made each time" if self._anew == self._in_row else "its state is emptied in between"
        text = f"{kind} begins each of its last {self._in_row} steps{self._line.at()} without states: {how}, and momentum is lost."
        advice = "Make the optimizer once, before the loop."
        return [self.subject.alert(self.name, text, advice, value=float(self._in_row), evidence={**self._line.evidence, "optimizer": kind})]
