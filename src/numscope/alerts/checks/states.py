"""An optimizer keeps what it has learned from step to step."""

from __future__ import annotations

import weakref

from torch.optim import Optimizer

from numscope.alerts.checks.check import UNKNOWN, Check, ScriptLine, Subject, current_line

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
        self._line: ScriptLine = UNKNOWN

    def before_step(self, optimizer: Optimizer) -> None:
        self._before = not optimizer.state
        if self._in_row == LEAST_STEPS - 1:
            self._line = current_line()

    def after_step(self, optimizer: Optimizer) -> None:
        self._is_empty = self._is_empty is not False and self._before and bool(optimizer.state)
        self._is_other = self._last is None or self._last() is not optimizer
        self._last = weakref.ref(optimizer)

    def end(self, closing: bool) -> None:
        last = None if self._last is None else self._last()
        empty, self._is_empty = self._is_empty, None
        if last is None or empty is None:  # loss scaling leaves steps out
            return
        self._in_row = self._in_row + 1 if empty else 0
        self._anew = self._anew + 1 if empty and self._is_other else 0
        if self._in_row >= LEAST_STEPS:
            kind = type(last).__name__
            how = f"a new {kind} is made each time" if self._anew == self._in_row else "its state is emptied in between"
            text = f"{kind} begins each of its last {self._in_row} steps{self._line.at()} without states: {how}, and momentum is lost."
            advice = "Make the optimizer once, before the loop."
            self.say(text, advice, line=self._line, value=float(self._in_row), evidence={"optimizer": kind})
