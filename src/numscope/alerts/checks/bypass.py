"""A model inside DistributedDataParallel is trained through it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from numscope.alerts.checks.check import UNKNOWN, Check, ScriptLine, Subject, current_line
from numscope.distributed import agree
from numscope.probe.dynamo import in_compiled, shells_of

_WRAPPED = nn.parallel.DistributedDataParallel.forward.__code__


class Bypass(Check):
    """Looks, at thorough steps on several ranks, whether calls that train the model come from its DDP, which else averages no gradients.

    *Cost:* one walk over all objects in a run, and some microseconds a call of a thorough step.
    """

    name = "DDP is bypassed"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._ddp: Any = None
        self._searched = False
        self._through = False
        self._around: ScriptLine = UNKNOWN

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if torch.is_grad_enabled() and agree.spread():
            if not self._searched:
                self._searched = True
                ddp = agree.find_ddp(self.subject.model, self.subject.wrapper)
                self._ddp = None if ddp is None or shells_of([ddp]) else ddp  # where it is compiled, no frame of its forward is seen
            if self._ddp is not None:
                if self._is_inside() or in_compiled():
                    self._through = True
                elif self._around is UNKNOWN:
                    self._around = current_line()

    def before_step(self, optimizer: Optimizer) -> None:
        around, self._around = self._around, UNKNOWN
        through, self._through = self._through, False
        if around is not UNKNOWN and not through and self.subject.steps.had_backward:
            text = f"The model inside DistributedDataParallel is called{around.at()} without its wrapper: ranks do not average gradients."
            self.say(text, "Call the wrapper, ddp(x), not ddp.module(x).", line=around, asks=True)

    def _is_inside(self) -> bool:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame.f_code is _WRAPPED and frame.f_locals.get("self") is self._ddp:
                return True
            frame = frame.f_back
        return False
