"""An optimizer keeps what it has learned from step to step, and has the parameters that it is to have, alone."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.optim import Optimizer

from numscope.alerts.checks.check import OCCASIONS, UNKNOWN, Check, ScriptLine, Subject, current_line, names_of
from numscope.probe.optimizers import ids_held, ids_known, ids_of

EMPTY = "group without parameters"
NORMS = "norms decay"
LEAST_STEPS = 4  # in a row that begin with empty states


class LostState(Check):
    """Steps in a row that each begin with an optimizer without states and end with one that has some.

    *Cost:* 1 µs an optimizer's step.
    """

    name = "optimizer state lost"
    cheap = OCCASIONS

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


class Owners(Check):
    """Two optimizers step with one parameter after one backward, or one has a group without parameters while some are in none, or
    decay though such a group's would not; or it leaves some vectors without decay, and not all.

    *Cost:* at a thorough step 1 µs a parameter.
    """

    name = "parameter in two optimizers"
    also = (EMPTY, NORMS)

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        # Since the last backward: an optimizer's id, which no other one has as long as it lives, its class, and its parameters.
        self._stepped: list[tuple[int, str, set[int]]] = []

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        self._stepped.clear()

    def before_step(self, optimizer: Optimizer) -> None:
        kind, mine, line = type(optimizer).__name__, ids_of(optimizer), current_line()
        given = {name: ids_known(p) for name, p in self.subject.parameters().items() if p.grad is not None}
        others = [(other, theirs) for number, other, theirs in self._stepped if number != id(optimizer)]
        for other, theirs in others:  # not one within whose step this one steps, as a wrapper's does
            if both := [name for name, ids in given.items() if not mine.intersection(theirs).isdisjoint(ids)]:
                text = f"{names_of(both)}: {other} and {kind}, which steps{line.at()}, both move them by the gradients of one backward."
                self.say(text, "Give each parameter to one optimizer.", line=line, parameters=both, asks=True)
        decays = {id(p) for group in optimizer.param_groups if group.get("weight_decay") for p in group["params"]}
        vectors = [n for n, p in self.subject.parameters().items() if n in given and p.dim() < 2 and not decays.isdisjoint(given[n])]
        free_ones = [p for group in optimizer.param_groups if group.get("weight_decay") == 0 for p in group["params"]]
        if vectors and free_ones and all(p.dim() < 2 for p in free_ones):
            text = f"{kind}'s group without weight decay has biases and norms alone, and {names_of(vectors)} are in one that decays."
            advice = "Look at the names that are chosen for it: models call their norms ln_1, norm, input_layernorm, not just LayerNorm."
            self.say(text, advice, rule=NORMS, line=line, parameters=vectors, asks=True)
        if empty := [group for group in optimizer.param_groups if not group["params"]]:
            held = ids_held()
            if free := [name for name, ids in given.items() if held.isdisjoint(ids)]:
                text = f"A group of {kind}'s has no parameter, and gradients arrive at {names_of(free)}, which no optimizer has."
                advice = "Give groups lists: an iterator, as filter(...) or parameters() makes it, is empty once it was used."
                self.say(text, advice, rule=EMPTY, line=line, parameters=free, asks=True)
            elif vectors and any(group.get("weight_decay") == 0 for group in empty):
                text = f"{kind}'s group without weight decay has no parameter, and {names_of(vectors)} are in one that decays."
                advice = "Look at how names are chosen for it: any(part in name for part in parts), not name in parts."
                self.say(text, advice, rule=EMPTY, line=line, parameters=vectors, asks=True)

    def after_step(self, optimizer: Optimizer) -> None:
        self._stepped.append((id(optimizer), type(optimizer).__name__, ids_of(optimizer)))
