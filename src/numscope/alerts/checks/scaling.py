"""GradScaler's order: scale the loss, backward, unscale, clip, step; and clipping where there is something to clip."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from numscope.alerts.checks.check import UNKNOWN, Check, ScriptLine, Subject, current_line
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.calls import in_backward
from numscope.probe.living import Beside
from numscope.probe.loop_calls import LoopCall
from numscope.probe.nodes import holds, node_of, trains

CLIPPED = "clipped before unscaling"
UNSCALED_STEP = "step without unscaling"
UNSCALED_LOSS = "loss not scaled"
CLIPPED_LATE = "clipped after the step"
CLIPPED_NOTHING = "nothing is clipped"
CLIPPED_EACH = "clipped with each backward"
CLIPPED_PART = "clipped in part"
CLIPPED_ALL = "clipped to 0"
CHANGED = "gradients change after clipping"


class ScalerUse(Check):
    """Follows GradScaler's calls and those of torch's functions that clip gradients. What clips by hand is not seen.

    *Cost:* at a thorough step a microsecond a call of the loop's, and a walk over a scaled loss's graph; nothing is read.
    """

    name = CLIPPED
    also = (UNSCALED_STEP, UNSCALED_LOSS, CLIPPED_LATE, CLIPPED_NOTHING, CLIPPED_EACH, CLIPPED_PART, CLIPPED_ALL, CHANGED)
    fused = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._scaled: set[Any] = set()  # nodes of this step's graphs, of what a scaler has scaled
        self._is_scaled = False  # a backward of such a thing has reached the model in this step
        self._has_plain = False  # a backward of something else has
        self._unscaled: Beside[Optimizer, bool] = Beside()
        self._had_backward = True  # since the last step; before the first one nobody knows
        self._late = 0
        self._nothing = 0
        self._clipped: Counter[int] = Counter()  # by the id of the first gradient: clippings of this step, each after a further backward
        self._had_new = False  # backward since the last clipping
        self._given: set[int] = set()  # parameters that were to be clipped in this step
        self._in_part = 0  # steps of optimizers that got others too
        self._left: dict[int, int] = {}  # by the id of a gradient: its version as clipping has left it
        self._changed = 0  # steps by gradients that have another one
        self._each = 0  # thorough steps in a row with several
        self._line: ScriptLine = UNKNOWN
        self._clip_line: ScriptLine = UNKNOWN

    def called(self, call: LoopCall) -> None:
        if call.kind == "scale":
            given = call.args[0]
            outputs = [given] if isinstance(given, Tensor) else given if isinstance(given, list | tuple) else ()
            self._scaled.update(node for output in outputs if isinstance(output, Tensor) and (node := node_of(output)) is not None)
        elif call.kind == "unscale":
            optimizer = call.given(0, "optimizer")
            if optimizer is not None:
                self._unscaled[optimizer] = True
        elif call.kind == "clip":
            self._clips(call)

    def returned(self, call: LoopCall) -> None:
        bound = call.kwargs.get("clip_value", call.given(1, "max_norm")) if call.kind == "clip" else math.inf
        if not self._is_scaled and not (
            isinstance(bound, int | float) and math.isinf(bound)
        ):  # where unscaling follows, another rule speaks
            self._left.update((id(p.grad), p.grad._version) for p in _given(call) if p.grad is not None)

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        if trains(roots, self.subject.model):
            self._had_backward = self._had_new = True
            is_scaled = bool(self._scaled) and holds(roots, self._scaled)
            self._is_scaled = self._is_scaled or is_scaled
            self._has_plain = self._has_plain or not is_scaled
            self._line = current_line()

    def before_step(self, optimizer: Optimizer) -> None:
        if in_backward():
            return
        if self._is_scaled and not optimizer_probe.in_scaler() and optimizer not in self._unscaled:
            line = current_line()
            text = f"{type(optimizer).__name__} steps{line.at()} by gradients that still have GradScaler's scale on them."
            advice = "Call scaler.step(optimizer) instead of optimizer.step(), then scaler.update()."
            self.say(text, advice, rule=UNSCALED_STEP, line=line)
        elif optimizer_probe.in_scaler() and self._has_plain and not self._is_scaled:
            where = self._line.at(" before backward at ")
            text = f"GradScaler unscales gradients, but the loss was not scaled{where}: updates are far too small."
            self.say(text, "Call scaler.scale(loss).backward().", rule=UNSCALED_LOSS, line=self._line)

        self._clips_each(type(optimizer).__name__)
        got = [id(p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        is_mine = any(id(p) in got[:1] for p in self.subject.model.parameters())  # of several models one speaks
        left = len({*got} - self._given) if is_mine else 0
        self._in_part += 0 < left < len(got)
        if 0 < left < len(got) and self._in_part > 1:
            text = f"Of {len(got)} gradients that {type(optimizer).__name__} gets, {left} are not among those that are clipped"
            advice = "Clip all that the optimizer has, with one call: the norm is that of what the call is given."
            self.say(f"{text}{self._clip_line.at()}.", advice, rule=CLIPPED_PART, line=self._clip_line, asks=True)
        given = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None and id(p.grad) in self._left]
        later = [gradient for gradient in given if gradient._version != self._left[id(gradient)]]
        self._changed += 2 * len(later) > len(given)
        if 2 * len(later) > len(given) and self._changed > 1:
            text = f"{len(later)} of {len(given)} gradients are written again between clipping{self._clip_line.at()} and the step of "
            text += f"{type(optimizer).__name__}: what it gets may be beyond the limit, or far below."
            advice = "Clip last: after ranks have averaged gradients, after unscaling and after the last backward of a step."
            self.say(text, advice, rule=CHANGED, line=self._clip_line, asks=True)

    def after_step(self, optimizer: Optimizer) -> None:
        self._had_backward = False

    def skipped_step(self, optimizer: Optimizer) -> None:
        self._had_backward = False

    def end(self, closing: bool) -> None:
        self._is_scaled = self._has_plain = False
        self._given.clear()
        self._left.clear()
        self._unscaled.clear()
        self._scaled.clear()

    def _clips(self, call: LoopCall) -> None:
        parameters = call.given(0, "parameters")
        is_empty = isinstance(parameters, Iterator)  # others come as lists
        given = _given(call)
        self._given.update(map(id, given))
        if self._had_backward and all(p.grad is None for p in given):
            self._nothing += 1
            if self._nothing > 1:  # a loop's first round may be special
                line = current_line()
                why = "the iterator of parameters is empty or used up" if is_empty else "no parameter that is given has a gradient"
                text = f"Gradients are to be clipped{line.at()}, but {why}: nothing is clipped."
                self.say(text, "Pass parameters() of the model that is trained, made anew for each call.", rule=CLIPPED_NOTHING, line=line)
        owners = self._owners(parameters)
        if not owners:
            return
        if self._is_scaled and self._had_backward and not any(optimizer in self._unscaled for optimizer in owners):
            line = current_line()
            text = f"Gradients are clipped{line.at()} while GradScaler's scale is on them: next to nothing is left after unscaling."
            self.say(text, "Call scaler.unscale_(optimizer) before clipping.", line=line)
            return
        if self._had_new:
            first = parameters if isinstance(parameters, Tensor) else parameters[0]
            if first.grad is not None:  # another one where gradients are cleared between two backwards
                self._clipped[id(first.grad)] += 1
            self._had_new, self._clip_line = False, current_line()
        bound = call.kwargs.get("clip_value", call.given(1, "max_norm"))
        if isinstance(bound, int | float) and bound <= 0:
            line = current_line()
            what = "nothing is left of them" if bound == 0 else "they are turned round, or all the same"
            advice = "A limit of 0 does not switch clipping off: leave the call out, or give math.inf to have the norm alone."
            self.say(f"Gradients are clipped{line.at()} to {bound:g}: {what}.", advice, rule=CLIPPED_ALL, line=line, value=float(bound))
        if not self._had_backward and not (isinstance(bound, int | float) and math.isinf(bound)):
            self._late += 1
            if self._late > 1:  # a loop's first round may be special
                line = current_line()
                when = "after the optimizer's step and before the next backward, where it changes nothing"
                text = f"Gradients are clipped{line.at()} {when}."
                self.say(text, "Clip between backward and optimizer.step().", rule=CLIPPED_LATE, line=line)

    def _clips_each(self, kind: str) -> None:
        """An optimizer steps: were its gradients clipped after several of the backwards that add up in them?"""
        most = max(self._clipped.values(), default=0)
        self._clipped.clear()
        self._each = self._each + 1 if most > 1 else 0
        if self._each > 1:  # a loop's first round may be special
            text = f"Gradients are clipped{self._clip_line.at()} {most} times before {kind}'s step, each time after a further backward: "
            text += "what earlier ones have given is clipped again and again, and counts less."
            self.say(text, "Clip once, when all backwards of a step are done.", rule=CLIPPED_EACH, line=self._clip_line, asks=True)

    def close(self) -> None:
        self._scaled.clear()

    def _owners(self, parameters: Any) -> list[Optimizer]:
        """The model's optimizers that have the first of the given parameters."""
        first = parameters if isinstance(parameters, Tensor) else next(iter(parameters), None) if isinstance(parameters, Sequence) else None
        living = self.subject.optimizers.living
        if first is None:
            return []
        return [o for o in living if any(p is first for group in o.param_groups for p in group["params"])]


def _given(call: LoopCall) -> list[Tensor]:
    """The parameters of which the gradients are clipped; of an iterator none, since a walk would use it up."""
    parameters = call.given(0, "parameters")
    return [parameters] if isinstance(parameters, Tensor) else [] if isinstance(parameters, Iterator) else list(parameters)
