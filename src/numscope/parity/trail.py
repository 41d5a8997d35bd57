"""The steps of a run as a trail of checksums, by which a run that was stopped and resumed is compared with one that went on."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.distributed.agree import rank
from numscope.parity.judging import ParityVerdict
from numscope.parity.recording import call_at_work
from numscope.parity.snapshot import checksums_by_id, one_checksum, one_of, random_states
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.hook import Hook, hook_calls, new_id, unhook_calls
from numscope.probe.inputs import Inputs
from numscope.probe.living import Living
from numscope.probe.loop_calls import LoopCall
from numscope.probe.optimizer import guarded
from numscope.records.alert import Alert
from numscope.records.errors import UsageError
from numscope.records.faults import ours, told
from numscope.records.files import read_json, write_atomically
from numscope.records.words import count
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import plain

SAVED = "saved"  # a file beside the trails: the step of the save to go on from, and after how many further steps ranks end
_NEAR = 1e-6  # relative difference of losses that rounding may make


class TrailStep(NamedTuple):
    """One step: checksums of the batch, of the random numbers before the update and of the weights after it; and the loss."""

    batch: str
    random: str
    loss: float | None
    weights: str


@dataclass
class RankTrail:
    """The trail of one rank.

    Args:
        begin: checksum of the weights before the first step.
        saves: after how many steps a checkpoint was saved.
        lost: what the alert *state not loaded* has said.
        is_certain: some of it without a question.
        error: why nothing more was recorded.
    """

    rank: int = 0
    begin: str = ""
    steps: list[TrailStep] = field(default_factory=list)
    saves: list[int] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    is_certain: bool = False
    error: str = ""

    def write(self, folder: str) -> None:
        write_atomically(os.path.join(folder, f"rank{self.rank:05d}.json"), json.dumps(asdict(self)))


def read_trails(folder: str | os.PathLike[str]) -> list[RankTrail]:
    """Those of all ranks. Raises: UsageError where there is none, or none with a step."""
    try:
        found = [RankTrail(**read_json(path)) for path in sorted(Path(folder).glob("rank*.json"))]
        for one in found:
            one.steps = [TrailStep(*step) for step in one.steps]
    except ours(OSError, ValueError, TypeError) as error:
        raise UsageError(f"can't be read ({error}), expected a recording of numscope parity.", os.fspath(folder)) from None
    fault = next((one.error for one in found if one.error), "")
    if fault or not found:
        raise UsageError(f"nothing was recorded: {fault or 'no torch optimizer stepped'}.", os.fspath(folder))
    return found


class Trail(optimizer_probe.StepListener):
    """Records a rank's steps: those of the first optimizer that steps, with the batches of the first model. Batch and loss are the first
    ones since any optimizer has stepped: where several take turns, what another one's turn had is not this one's.

    Args:
        folder: of the run; all ranks have it.
        num_steps: to compare. Without ``saves`` the run ends after so many; with it, so many after the first save that comes after so many,
            or sooner, before the next save can be expected.
        over: is called then.

    *Cost:* one pass over the weights a step, and a sync.
    """

    def __init__(self, folder: str, num_steps: int, over: Callable[[], None], *, saves: bool) -> None:
        self.found = RankTrail()
        self.closed = False
        self._folder, self._num_steps, self._over, self._saves = folder, num_steps, over, saves
        self._optimizer: Callable[[], Optimizer | None] = lambda: None
        self._inputs = Inputs()
        self._undo: Callable[[], None] | None = None
        self._random = ""
        self._models: Living[nn.Module] = Living()
        self._before = dict[int, int]()  # checksums of the weights before the first backward
        self._loss: float | None = None
        self._turn = self._turn_of_loss = 0  # steps of all optimizers

    def failed(self, error: Exception) -> None:
        """Note the tool's own error, and record nothing more."""
        self.found.error, self.closed = told(error), True

    def close(self) -> None:
        """Write the trail, and take all hooks away."""
        optimizer_probe.unlisten(self)
        if self._undo is not None:
            self._undo()
        if self.found.steps or self.found.error:  # else it is a process that starts others
            self.found.rank = rank()
            self.found.write(self._folder)

    def add_lost(self, alerts: Iterable[Alert]) -> None:
        for alert in alerts:
            self.found.lost.append(alert.text)
            self.found.is_certain |= not alert.asks

    @guarded()
    def add(self, model: nn.Module) -> None:
        """Record the batches of a model, from the call that is at work on."""
        self._models.add(model)
        if self._undo is None:
            key = new_id()
            hook_calls(model, key, Hook(self._called), Hook(_nothing), always=False, first=False)
            self._undo = partial(unhook_calls, model, key)
            if (given := call_at_work(model)) is not None:
                self._see(given)

    def _called(self, module: nn.Module, *given: Any) -> None:
        if torch.is_grad_enabled() and not optimizer_probe.is_paused():
            self._see(given)

    @guarded()
    def _see(self, given: tuple[Any, ...]) -> None:
        args, kwargs = given if len(given) == 2 and isinstance(given[1], Mapping) else (given[0], {})
        self._inputs.see(self._turn, 0, args, kwargs)

    @guarded()
    def before_backward(self, roots: Sequence[Tensor]) -> None:
        if not self.found.begin and not self._before:  # SAM moves them between its backwards, and back up to rounding
            self._before = checksums_by_id(p for model in self._models for p in model.parameters())
        is_first = self._loss is None or self._turn_of_loss != self._turn
        if is_first and optimizer_probe.accumulates() and len(roots) == 1 and roots[0].numel() == 1:
            with unseen():
                self._turn_of_loss = self._turn
                self._loss = float(plain(roots[0]).item())

    @guarded()
    def before_step(self, optimizer: Optimizer) -> None:
        if self._optimizer() is None:
            self._optimizer = lambda: optimizer
        if self._optimizer() is optimizer:
            self._random = repr(sorted(random_states().items()))
            self.found.begin = self.found.begin or self._weights_before(optimizer)

    @guarded()
    def after_step(self, optimizer: Optimizer) -> None:
        turn, self._turn = self._turn, self._turn + 1
        if self._optimizer() is not optimizer:
            return
        weights = self._weights(optimizer)  # after its sync the batch is here
        self._inputs.settle()
        batch = next((f"{one.sum:x}" for one in self._inputs.batches if one.num == turn), "")
        self.found.steps.append(TrailStep(batch, self._random, self._loss, weights))
        self._loss = None
        self._inputs.batches.clear()
        if self._is_over():
            self._over()

    @guarded()
    def called(self, call: LoopCall) -> None:
        optimizer = self._optimizer()
        if call.kind != "save" or optimizer is None or not self._saves:
            return
        num = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
        if 2 * call.args[0] >= num > 0:
            saves, step = self.found.saves, len(self.found.steps)
            before = max((one for one in saves if one < step), default=0)
            saves += [step] if step not in saves else []
            if step >= self._num_steps:
                write_atomically(os.path.join(self._folder, SAVED), f"{step} {min(self._num_steps, step - before)}")

    def _is_over(self) -> bool:
        if not self._saves:
            return len(self.found.steps) >= self._num_steps
        try:
            with open(os.path.join(self._folder, SAVED), encoding="utf-8") as file:
                return len(self.found.steps) >= sum(map(int, file.read().split()))
        except FileNotFoundError:
            return False

    def _weights_before(self, optimizer: Optimizer) -> str:
        """The weights before the first step, as they were before its first backward where that is known."""
        ids = [id(p) for group in optimizer.param_groups for p in group["params"]]
        if not all(one in self._before for one in ids):
            return self._weights(optimizer)
        return one_of([self._before[one] for one in ids], ordered=False)

    @staticmethod
    def _weights(optimizer: Optimizer) -> str:
        """In any order: an optimizer that has the parameters in another one has lost its state, not them."""
        return one_checksum((p for group in optimizer.param_groups for p in group["params"]), ordered=False)


def _nothing(*given: Any) -> None:
    pass


def steps_after(first: Sequence[RankTrail], most: int) -> int:
    """How many steps, ``most`` at most, a run has made after its last save. Raises: UsageError for a run without any."""
    saved = max((save for one in first for save in one.saves), default=0)
    num = min(len(one.steps) for one in first)
    made = f"the run has made {count(num, 'step')}"
    if not saved:
        raise UsageError(f"{made} and saved no checkpoint that was seen, expected a script that saves.", "parity")
    if num == saved:
        raise UsageError(f"{made}, and saved after the last one alone, expected one that goes on.", "parity")
    return min(most, num - saved)


def judge_resume(first: Sequence[RankTrail], second: Sequence[RankTrail]) -> ParityVerdict:
    """Where a resumed run parts from the one that went on, and what it has lost."""
    begun = [first[0].begin, *(step.weights for step in first[0].steps)]
    lost = tuple(dict.fromkeys(text for one in second for text in one.lost))
    why = f" {' '.join(lost)}" if lost else ""
    saved = max((save for one in first for save in one.saves), default=0)
    same = [number for number, weights in enumerate(begun) if weights == second[0].begin]  # some updates change nothing
    at = next((number for number in reversed(same) if number in first[0].saves), same[0] if same else None)
    if not at:
        not_loaded = "the first one's first weights, in the optimizer that steps first: they were not loaded"
        begins = not_loaded if at == 0 else "weights of no step of the first"
        return ParityVerdict("resume", f"the second run begins with {begins}; the first saved after step {saved}.{why}", step=-1)
    num = min(min(len(one.steps) - at for one in first), min(len(one.steps) for one in second))
    if num < 1:
        text = f"the second run goes on after step {at}, the last one of the first, which has saved as it was ended."
        return ParityVerdict("resume", text, step=-1)
    widest = 0.0
    for i in range(num):
        for a, b in zip(first, second, strict=False):
            before, now = a.steps[at + i], b.steps[i]
            distance = _distance(before.loss, now.loss)
            if before.batch != now.batch:
                what = "the batch is another one"
            elif distance > _NEAR:
                known = ["from the same batch"] * bool(now.batch) + ["with another random state"] * (before.random != now.random)
                what = ", ".join((f"the loss is {now.loss:.6g}, and was {before.loss:.6g}", *known))
            else:
                widest = max(widest, distance)
                continue
            where = f" on rank {a.rank}" if len(first) > 1 else ""
            return ParityVerdict("resume", f"resumed after step {at}: at step {at + i + 1}{where} {what}.{why}", step=at + i)
    equal = all(a.steps[at + num - 1].weights == b.steps[num - 1].weights for a, b in zip(first, second, strict=False))
    bits = "bit by bit" if equal else f"up to rounding: losses differ by {widest:.2g} of themselves at most, weights in their bits"
    text = f"the run that was resumed after step {at} goes on as the other one, {bits}, over {count(num, 'step')}."
    if any(one.is_certain for one in second):
        return ParityVerdict("resume", f"{text}{why}", step=at)
    return ParityVerdict(None, text, notes=lost)


def _distance(a: float | None, b: float | None) -> float:
    if a is None or b is None or a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return abs(a - b) / max(abs(a), abs(b))
