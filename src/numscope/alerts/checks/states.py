"""An optimizer keeps what it has learned from step to step."""

from __future__ import annotations

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
        self._was_empty = False  # the optimizer's states, before its step
        self._began: list[bool] = []  # of the step's optimizers: it had no states before, and has some now
        self._in_row = 0
        self._kind = ""
        self._line: ScriptLine = UNKNOWN

    def before_step(self, optimizer: Optimizer) -> None:
        self._was_empty = not optimizer.state
        if self._in_row == LEAST_STEPS - 1:
            self._line = current_line()

    def after_step(self, optimizer: Optimizer) -> None:
        self._began.append(self._was_empty and bool(optimizer.state))
        self._kind = type(optimizer).__name__

    def end(self, closing: bool) -> None:
        began, self._began = self._began, []
        if began:  # loss scaling leaves steps out
            self._in_row = self._in_row + 1 if all(began) else 0
        if self._in_row >= LEAST_STEPS:
            begins = f"{self._kind} begins each of its last {self._in_row} steps{self._line.at()} without states"
            text = f"{begins}: it is made anew each time, or its state is emptied in between, and momentum is lost."
            advice = "Make the optimizer once, before the loop."
            self.say(text, advice, line=self._line, value=float(self._in_row), evidence={"optimizer": self._kind})
