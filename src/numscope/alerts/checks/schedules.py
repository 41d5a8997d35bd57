"""A learning rate's scheduler steps once for a step of its optimizer, and after it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau

from numscope.alerts.checks.check import UNKNOWN, Check, ScriptLine, Subject, current_line, peak_rate
from numscope.probe.living import Beside
from numscope.probe.loop_calls import LoopCall
from numscope.records.heap import instances_of

NEVER = "scheduler never steps"
PAST_END = "schedule past its end"
FAR_FROM_END = "schedule far from its end"
LEAST_ROUNDS = 2  # in which a scheduler steps several times, before it is said
LEAST_SHARE = 0.1  # of the highest rate, by which a rate that is left out must differ from the next one
RARE = 4  # steps of an optimizer for one of its scheduler, from which on the scheduler counts epochs
LEAST_STEPS = 10  # of an optimizer whose scheduler never steps


class _Rhythm:
    """One scheduler's calls since its optimizer's last step."""

    __slots__ = ("before", "early", "first", "lines", "rounds")

    def __init__(self, first: list[float]) -> None:
        self.lines: list[ScriptLine] = []
        self.before = 0  # how many of them came before a backward
        self.first = first  # the rates that its first step changes
        self.early: ScriptLine | None = None  # where it stepped once before its optimizer did
        self.rounds = {"twice": 0, "with each backward": 0}


class Schedules(Check):
    """Follows schedulers' steps between their optimizers' steps.

    A scheduler that steps once before its optimizer does leaves out its first rate. That matters where the next rate is another one by a
    tenth; else only the order is wrong, and is asked about if the same line comes before the optimizer's second step too. Nothing is left
    out if the scheduler's count began one earlier, or if the script sets the rates itself meanwhile.

    Left alone are several steps from one line with no backward between them (Accelerate steps once for each rank, and a run that goes on
    from a checkpoint winds its scheduler forward), a scheduler that is told the epoch, and one that waits for a plateau.

    *Cost:* at the first step, where there are schedulers, one walk over all objects; 30 µs a scheduler's step of a stretch, for its line.
    """

    name = "scheduler order"
    also = (NEVER, PAST_END, FAR_FROM_END)
    rhythm = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._rhythms: Beside[LRScheduler, _Rhythm] = Beside()
        self._rounds: Beside[Optimizer, int] = Beside()  # steps of an optimizer

    def called(self, call: LoopCall) -> None:
        if call.kind != "scheduler" or isinstance(call.target, ReduceLROnPlateau):
            return
        if isinstance(call.target, CosineAnnealingLR) and call.target.last_epoch > call.target.T_max and PAST_END not in self.spoken:
            line, steps = current_line(), call.target.last_epoch
            text = f"CosineAnnealingLR has stepped {steps} times{line.at()}, of T_max {call.target.T_max}: the learning rate rises again."
            advice = "Give T_max in the unit in which the scheduler steps (steps, not epochs), or take CosineAnnealingWarmRestarts."
            self.say(text, advice, rule=PAST_END, line=line, asks=True)
        if self.name in self.spoken:
            return
        optimizer = getattr(call.target, "optimizer", None)
        if not isinstance(optimizer, Optimizer) or call.given(0, "epoch") is not None or not self.subject.optimizers.owns(optimizer):
            return
        rhythm = self._rhythms.get(call.target)
        if rhythm is None:
            rhythm = self._rhythms[call.target] = _Rhythm(_rates(optimizer))
        rhythm.lines.append(current_line())

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        for rhythm in self._rhythms.values():
            if rhythm.lines and not rhythm.before:
                rhythm.before = len(rhythm.lines)

    def before_step(self, optimizer: Optimizer) -> None:
        self._round(optimizer)

    def skipped_step(self, optimizer: Optimizer) -> None:
        self._round(optimizer)

    def last(self) -> None:
        for scheduler in _schedulers() if any(map(_has_scheduler, self._rounds)) else ():
            optimizer = getattr(scheduler, "optimizer", None)
            steps = self._rounds.get(optimizer, 0) if isinstance(optimizer, Optimizer) else 0
            if steps >= LEAST_STEPS and getattr(scheduler, "_step_count", 0) == 1:
                text = f"{type(scheduler).__name__} was made and never stepped, while {type(optimizer).__name__} did."
                self.say(text, "Call scheduler.step() after each step or epoch.", rule=NEVER, asks=True)
            made, length = int(getattr(scheduler, "last_epoch", 0)), _length_of(scheduler)
            steps = self.subject.num if steps else 0  # rounds are counted in stretches alone
            if 0 < made * RARE <= steps and steps / 2 <= length <= 2 * steps:
                text = f"{type(scheduler).__name__} is made for {length} steps, about as many as {type(optimizer).__name__} has made, and "
                text += f"has stepped {made} times: its rates never came."
                advice = "Call scheduler.step() after each optimizer.step(), or give its length in epochs."
                self.say(text, advice, rule=FAR_FROM_END, value=float(made), limit=float(length), asks=True)

    def _round(self, optimizer: Optimizer) -> None:
        """The optimizer steps: how often has its scheduler since its last one?"""
        rounds = self._rounds[optimizer] = self._rounds.get(optimizer, 0) + 1
        if self.name in self.spoken:
            return
        if rounds == 1:
            self._first_round(optimizer)
            return
        for scheduler, rhythm in list(self._rhythms.items()):
            if rhythm.lines and scheduler.optimizer is optimizer:
                if rhythm.early is not None and rounds == 2 and [line[:2] for line in rhythm.lines] == [rhythm.early[:2]]:
                    self._is_before(scheduler, rhythm.lines[-1])
                    return
                lines, between = rhythm.lines, 0 < rhythm.before < len(rhythm.lines)
                rhythm.lines, rhythm.before = [], 0
                kind = type(scheduler).__name__
                if between:
                    rhythm.rounds["with each backward"] += 1
                elif len({(line.file, line.number) for line in lines}) > 1:
                    rhythm.rounds["twice"] += 1
                if rhythm.rounds["twice"] >= LEAST_ROUNDS:
                    places = " and ".join(dict.fromkeys(line.short for line in lines))
                    text = f"{kind} steps {len(lines)} times for one step of {type(optimizer).__name__}: at {places}."
                    self._tell(text, "Call scheduler.step() in one place.", lines[-1])
                elif rhythm.rounds["with each backward"] >= LEAST_ROUNDS:
                    times = f"{len(lines)} times for one step of {type(optimizer).__name__}"
                    text = f"{kind} steps{lines[-1].at()} with each backward, {times}."
                    self._tell(text, "Call scheduler.step() where optimizer.step() is called.", lines[-1], asks=True)

    def _first_round(self, optimizer: Optimizer) -> None:
        """Before the first step of an optimizer. One that goes on from a checkpoint has states, and had steps that nobody has seen."""
        if optimizer.state or not _has_scheduler(optimizer):
            return
        for scheduler in _schedulers():
            if getattr(scheduler, "optimizer", None) is not optimizer:
                continue
            rhythm = self._rhythms.get(scheduler)
            lines = [] if rhythm is None else rhythm.lines
            counted = getattr(scheduler, "_step_count", None)  # with its making
            is_early = (len(lines) if counted is None else counted - 1) == 1 and _leaves_out(scheduler, optimizer)
            if is_early and (rhythm is None or _far_apart(rhythm.first, _rates(optimizer), optimizer)):
                self._is_before(scheduler, lines[0] if lines else UNKNOWN)
                return
            if rhythm is not None:
                rhythm.early, rhythm.lines, rhythm.before = (lines[-1] if is_early and lines else None), [], 0

    def _is_before(self, scheduler: LRScheduler, line: ScriptLine) -> None:
        order = f"{type(scheduler).__name__} steps{line.at()} before {type(scheduler.optimizer).__name__} does"
        self._tell(f"{order}: it leaves out the first rate.", "Call scheduler.step() after optimizer.step().", line, asks=True)

    def _tell(self, text: str, advice: str, line: ScriptLine, asks: bool = False) -> None:
        self.say(text, advice, line=line, asks=asks)
        self._rhythms.clear()


def _has_scheduler(optimizer: Optimizer) -> bool:
    """Whether a scheduler was made for it: each has the optimizer's own ``step`` note that it was called."""
    return "step" in vars(optimizer)


def _schedulers() -> list[LRScheduler]:
    """All but those that wait for a plateau, and those that others are made of and step in their turn."""
    found = [scheduler for scheduler in instances_of(LRScheduler) if not isinstance(scheduler, ReduceLROnPlateau)]
    parts = {id(part) for scheduler in found for part in getattr(scheduler, "_schedulers", ())}
    return [scheduler for scheduler in found if id(scheduler) not in parts]


def _length_of(scheduler: LRScheduler) -> int:
    """The steps that it is made for; 0 if it does not say."""
    names = ("total_steps", "T_max", "total_iters")
    return next((int(v) for name in names if isinstance(v := getattr(scheduler, name, None), int | float) and math.isfinite(v)), 0)


def _leaves_out(scheduler: LRScheduler, optimizer: Optimizer) -> bool:
    """Whether it is past its first rate, and its rates are those in use."""
    theirs = getattr(scheduler, "_last_lr", None)
    known = theirs is None or [rate for rate in theirs if not isinstance(rate, Tensor)] == _rates(optimizer)
    return bool(getattr(scheduler, "last_epoch", 1) > 0 and known)


def _rates(optimizer: Optimizer) -> list[float]:
    """The learning rates of its groups, but for those in tensors, which may lie on a device."""
    return [group["lr"] for group in optimizer.param_groups if not isinstance(group.get("lr", 0.0), Tensor)]


def _far_apart(first: list[float], rates: list[float], optimizer: Optimizer) -> bool:
    """Whether a rate is another one by a tenth of the largest that a group's schedule is known to have."""
    top = max([*map(peak_rate, optimizer.param_groups), *first, *rates], default=0.0)
    return any(abs(one - other) > top * LEAST_SHARE for one, other in zip(first, rates, strict=False))
