"""Gradients are cleared once between two steps of their optimizer: neither never, nor before they are used."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from numscope.alerts.checks.check import UNKNOWN, Check, ScriptLine, Subject, current_line
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.living import Beside
from numscope.probe.nodes import trains
from numscope.probe.optimizer import accumulates, in_step
from numscope.probe.optimizers import gradient_of, ids_of, living_optimizers
from numscope.summary.ledger import Ledger

LEAST_STEPS = 2  # in a row that begin with the gradients of the step before
MOST_TRACKED = 2  # gradients of an optimizer, its smallest ones
BETWEEN = "gradients cleared between micro-batches"
NEVER = "optimizer never steps"
OTHERS = "gradients of another loss"
MOST_UNUSED = 16  # backwards from the first one on, each of whose gradients is cleared before the next, without any step
FROZEN = "None of the model's parameters requires a gradient"
MOST_LOOKS = 32  # at gradients that a step's backwards add to


class _FromBefore:
    """Some of an optimizer's gradients since its last step, while they seem to be those of that step."""

    __slots__ = ("backwards", "gradients", "versions")

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.gradients = [(weakref.ref(p), weakref.ref(p.grad)) for p in parameters if p.grad is not None]
        self.versions = [p.grad._version for p in parameters if p.grad is not None]
        self.backwards = 0

    def is_there(self) -> bool:
        """Whether the optimizer gets these gradients: a script may have put others in their place."""
        return all((parameter := ref()) is None or parameter.grad is gradient() for ref, gradient in self.gradients)


class Clearing(Check):
    """Follows two gradients of each optimizer from its step to its next one.

    Gradients that nobody clears are the same tensors with the same version as the first backward after the step begins, which adds to them.
    Some loops have other models' backward run through first and clear later, so each further backward is looked at as well.

    *Cost:* 10 µs a step of a stretch; nothing is read but at most two small gradients.
    """

    name = "gradients not cleared"
    rhythm = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._kept: Beside[Optimizer, _FromBefore] = Beside()
        self._tracked: Beside[Optimizer, list[weakref.ref[Any]]] = Beside()
        self._in_row: Beside[Optimizer, int] = Beside()
        self._ledger: Ledger | None = None
        self._rows: list[tuple[Optimizer, list[int]]] = []  # of gradients that were written since, until the step is over
        self._line: ScriptLine = UNKNOWN

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        if not accumulates():  # autograd.grad adds to no gradient
            return
        for optimizer, kept in list(self._kept.items()):
            handles = []
            for position, (parameter_ref, gradient_ref) in enumerate(kept.gradients):
                parameter, gradient = parameter_ref(), gradient_ref()
                if parameter is None or gradient is None or parameter.grad is not gradient:
                    break
                if gradient._version != kept.versions[position]:
                    if not kept.backwards:  # no backward has written it: somebody has cleared it, or scaled it on purpose
                        break
                    kept.versions[position] = gradient._version
                    if kept.backwards <= MOST_LOOKS:
                        self._ledger = self._ledger or Ledger(capacity=8)
                        self._ledger.look_again()
                        handles.append(self._ledger.observe(gradient))
            else:
                if handles:
                    self._rows.append((optimizer, handles))
                continue
            self._in_row.pop(optimizer, None)
            del self._kept[optimizer]
        if self.subject.thorough and self._kept:
            self._line = current_line()

    def after_backward(self) -> None:
        for kept in self._kept.values():
            known = zip(kept.gradients, kept.versions, strict=True)
            versions = [version if (gradient := ref()) is None else gradient._version for (_, ref), version in known]
            if versions != kept.versions:  # else it is of others, and what the script puts into these gradients is no sum
                kept.backwards += 1
                kept.versions = versions

    def before_step(self, optimizer: Optimizer) -> None:
        kept = self._kept.pop(optimizer, None)
        if kept is not None and kept.backwards and kept.is_there():
            self._in_row[optimizer] = self._in_row.get(optimizer, 0) + 1

    def after_step(self, optimizer: Optimizer) -> None:
        tracked = self._tracked.get(optimizer)
        if tracked is None or self.subject.thorough:
            given = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            given = sorted(given, key=lambda p: int(p.numel()))[:MOST_TRACKED]
            tracked = self._tracked[optimizer] = [weakref.ref(p) for p in given]
        parameters = [p for ref in tracked if (p := ref()) is not None]
        if parameters and all(p.grad is not None for p in parameters):
            self._kept[optimizer] = _FromBefore(parameters)

    def end(self, closing: bool) -> None:
        if self._ledger is not None:
            self._ledger.read()
            for optimizer, handles in self._rows:
                if self._ledger.are_zero(handles):  # cleared in place, between two backwards
                    self._in_row.pop(optimizer, None)
            self._rows.clear()
            self._ledger = None
        kind = next((type(optimizer).__name__ for optimizer, number in self._in_row.items() if number >= LEAST_STEPS), "")
        if kind:
            line = self._line
            text = f"Gradients of earlier steps are still there at backward{line.at()} and are added to: {kind} updates with their sum."
            advice = "Call optimizer.zero_grad() once a step, before the step's first backward."
            self.say(text, advice, line=line, evidence={"optimizer": kind})

    def close(self) -> None:
        self._kept.clear()


class _Others(optimizer_probe.StepListener):
    """Whether any optimizer has stepped."""

    def __init__(self) -> None:
        self.have_stepped = False
        optimizer_probe.listen(self)

    def after_step(self, optimizer: Optimizer) -> None:
        self.have_stepped = True


class Reaching(Check):
    """A step's backward reaches the model's parameters, and its gradients are there when the optimizer steps.

    *Cost:* at a thorough step a walk over the loss's graph, about 1 µs a node.
    """

    name = "loss does not reach the model"
    also = ("gradients cleared before the step", BETWEEN, NEVER, OTHERS)

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._lost: list[ScriptLine] = []  # of this step's backwards whose gradients were gone before the next one
        self._gave: ScriptLine | None = None  # the last backward, if it gave gradients
        self._there: ScriptLine | None = None  # the last one that gave some, while these are there: others may give none in between
        self._was: tuple[int, int] | None = None  # the first gradient before the last backward
        self._made: tuple[int, int] | None = None  # and after it
        self._in_row = 0  # thorough steps with some
        self._others = _Others()
        # A backward before another optimizer's step, and the later one that adds to its gradients.
        self._left: tuple[ScriptLine, ScriptLine] | None = None
        self._adds: tuple[ScriptLine, ScriptLine] | None = None  # the same, of the backward at work
        self._left_in_row = 0  # thorough steps with one
        self._has_stepped = False  # any optimizer of the model's
        self._calls = 0  # with gradients, in this step
        self._reaches = False
        self._reason = ""
        self._line: ScriptLine = UNKNOWN

    def enter(self, *given: Any) -> None:
        self._calls += 1

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        if accumulates() and not in_step():  # a closure's backwards are the optimizer's affair
            self._was = self._first_gradient()
            gave, left = self._gave, self._was is not None and self._was == self._made and self._others.have_stepped
            self._others.have_stepped = False
            if self._there is not None and self._was is None:
                self._lost.append(self._there)
                if len(self._lost) == MOST_UNUSED and not self._has_stepped:
                    self._never_steps(self._there)
                self._there = None
            self._gave = current_line()
            self._adds = (gave, self._gave) if gave is not None and left else None
        if self._reaches or not self._calls:
            return
        self._reaches = trains(roots, self.subject.model)
        self._line = current_line()
        made_here = any(root.is_leaf and root.requires_grad for root in roots)
        self._reason = "The loss is a new tensor without a graph" if made_here else "The loss's graph holds none of the model's parameters"
        if not any(p.requires_grad for p in self.subject.model.parameters()):
            self._reason = FROZEN

    def after_backward(self) -> None:
        self._made = self._first_gradient()
        if self._made in (None, self._was):  # of what is no part of the model
            self._gave = None
            return
        self._there = self._gave
        if self._adds is not None:
            self._left, self._adds = self._adds, None

    def _never_steps(self, line: ScriptLine) -> None:
        wanted = {id(p) for p in self.subject.model.parameters()}
        kinds = [type(one).__name__ for one in living_optimizers() if not wanted.isdisjoint(ids_of(one))]
        if kinds:
            text = f"The gradients of {MOST_UNUSED} backwards{line.at()} were cleared before the next one, and {kinds[0]} has not stepped."
            self.say(
                text, "Call optimizer.step(), with its parentheses.", rule=NEVER, line=line, evidence={"optimizer": kinds[0]}, asks=True
            )

    def _first_gradient(self) -> tuple[int, int] | None:
        """Which tensor it is, and its version; None where no parameter has a gradient."""
        found = next((gradient for p in self.subject.model.parameters() if (gradient := gradient_of(p)) is not None), None)
        return None if found is None else (id(found), found._version)

    def before_step(self, optimizer: Optimizer) -> None:
        line, kind, self._has_stepped = self._line, type(optimizer).__name__, True
        lost, gave, self._lost, self._gave, self._there = self._lost, self._gave, [], None, None
        given = self._first_gradient()
        self._still_there(kind, given)
        if given is None or self._made is None or given[0] != self._made[0]:  # another tensor: the script has put all losses' together
            gave = None
        self._in_row = self._in_row + 1 if lost and gave is not None and gave.file and {*lost} == {gave} else 0
        # Other losses, of an attack for example, are begun from another line, and a GAN has two optimizers.
        if self._in_row > 1 and gave is not None and len(living_optimizers()) == 1:
            text = f"Of {len(lost) + 1} backwards{gave.at()} before {kind}'s step, the gradients of {len(lost)} are cleared by the next."
            self.say(text, "Call optimizer.zero_grad() once a step, not for each micro-batch.", rule=BETWEEN, line=gave, asks=True)
        if not line.file or given is not None:
            return
        if not self._reaches:
            text = f"{self._reason}{line.at(': backward at ')} gives it no gradients, and {kind} does not update it."
            if self._reason == FROZEN:
                self.say(text, "Set requires_grad on what is to be trained (PEFT: from_pretrained(..., is_trainable=True)).", line=line)
                return
            advice = "Look for .item(), .detach(), torch.tensor(loss), requires_grad_() or no_grad() between the model and the loss."
            self.say(text, advice, line=line)
        else:
            step = current_line()
            text = f"Backward{line.at()} has reached the model, but its gradients are gone as {kind} steps{step.at()}."
            advice = "Call optimizer.zero_grad() before backward, not between backward and optimizer.step()."
            self.say(text, advice, rule=self.also[0], line=step, evidence={"backward": line.evidence.get("line", "")})

    def _still_there(self, kind: str, given: tuple[int, int] | None) -> None:
        left, self._left = self._left, None
        self._left_in_row = self._left_in_row + 1 if left is not None and given is not None and given == self._made else 0
        if left is not None and self._left_in_row > 1:
            before, line = left
            text = f"Gradients of the backward{before.at()}, before another optimizer's step, are still there at backward{line.at()}: "
            text += f"{kind} updates with their sum."
            advice = f"Clear {kind}'s gradients before the backward whose gradients it is to use."
            self.say(text, advice, rule=OTHERS, line=line, evidence={"optimizer": kind}, asks=True)

    def close(self) -> None:
        optimizer_probe.unlisten(self._others)

    def skipped_step(self, optimizer: Optimizer) -> None:
        self._has_stepped = True  # as far as the script goes
        self._lost, self._gave, self._there = [], None, None

    def end(self, closing: bool) -> None:
        self._calls = 0
        self._reaches = False
        self._line = UNKNOWN
