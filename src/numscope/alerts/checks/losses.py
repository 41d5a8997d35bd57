"""The loss moves, and it is made of the model's outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor
from torch.optim import LBFGS, Optimizer

from numscope.alerts.checks.check import OCCASIONS, UNKNOWN, Check, ScriptLine, Subject, current_line
from numscope.summary.ledger import UNOBSERVED

LEAST_LOOKS = 5  # in a row with the same losses, to the last bit
STRIDE = 4  # steps from look to look


class ConstantLoss(Check):
    """The losses that backward is called on are bit for bit those of the step before, for many steps.

    *Cost:* 15 µs at one of four steps; the loss's row is the one that detection reads.
    """

    name = "constant loss"
    cheap = OCCASIONS

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._handles: list[int] = []
        self._losses: list[float] = []  # of the step at work
        self._last: list[float] = []
        self._same = 0
        self._line: ScriptLine = UNKNOWN

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        if self.subject.num % STRIDE == 0:
            ledger = self.subject.journal.ledger
            self._handles += [handle for root in roots if root.numel() == 1 and (handle := ledger.observe(root)) != UNOBSERVED]
            if ledger.on_host:  # its rows are forgotten as the next micro-batch begins
                self._read()
            if self._same == LEAST_LOOKS - 1:
                self._line = current_line()

    def after_step(self, optimizer: Optimizer) -> None:
        self._read()
        losses, self._losses = self._losses, []
        if not losses or not self.subject.steps.had_backward or isinstance(optimizer, LBFGS):  # it stays where it has arrived
            return
        self._same = self._same + 1 if losses == self._last else 0
        self._last = losses
        if self._same >= LEAST_LOOKS:
            text = f"The loss has been {losses[-1]:g} for {LEAST_LOOKS * STRIDE} steps, to the last bit{self._line.at(': backward at ')}."
            advice = "Look for a loss over a dimension of size 1, one that is saturated or clamped, or one batch whose weights do not move."
            if math.isclose(losses[-1], math.log(2), rel_tol=1e-6):
                advice = "It is ln 2, the loss of two equal logits: look whether the reference model is the policy itself."
            self.say(text, advice, line=self._line, value=losses[-1], asks=True)

    def _read(self) -> None:
        handles, self._handles = self._handles, []
        if handles and max(handles) < len(self.subject.journal.ledger):
            self._losses += self.subject.journal.ledger.amax(handles)

    def end(self, closing: bool) -> None:
        self._handles.clear()
        self._losses.clear()
