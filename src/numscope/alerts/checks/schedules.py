"""A learning rate's scheduler steps once for a step of its optimizer, and up to its end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from numbers import Real
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, ReduceLROnPlateau

from numscope.alerts.checks.check import EVERY, STRETCH, Check, ScriptLine, Subject, current_line
from numscope.probe.living import Beside
from numscope.probe.loop_calls import LoopCall
from numscope.probe.optimizers import ids_of
from numscope.records.heap import instances_of

NEVER = "scheduler never steps"
PAST_END = "schedule past its end"
FAR_FROM_END = "schedule far from its end"
WRONG_WAY = "plateau of the wrong sign"
LEAST_METRICS, MOST_METRICS = 6, 64  # that have never been better than the first one; looked at
LEAST_ROUNDS = 2  # in which a scheduler steps several times, before it is said
RARE = 4  # steps of an optimizer for one of its scheduler, from which on the scheduler counts epochs
LEAST_STEPS = 10  # of an optimizer whose scheduler never steps


class _Rhythm:
    """One scheduler's calls since its optimizer's last step."""

    __slots__ = ("before", "lines", "rounds")

    def __init__(self) -> None:
        self.lines: list[ScriptLine] = []
        self.before = 0  # how many of them came before a backward
        self.rounds = {"twice": 0, "with each backward": 0}


class Schedules(Check):
    """Follows schedulers' steps between their optimizers' steps.

    Left alone are several steps from one line with no backward between them (Accelerate steps once for each rank, and a run that goes on
    from a checkpoint winds its scheduler forward), a scheduler that is told the epoch, and one that waits for a plateau.

    *Cost:* at the first step, where there are schedulers, one walk over all objects; 30 µs a scheduler's step of a stretch, for its line.
    """

    name = "scheduler order"
    also = (NEVER, PAST_END, FAR_FROM_END, WRONG_WAY)
    cheap = ("called",)
    rhythm = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._rhythms: Beside[LRScheduler, _Rhythm] = Beside()
        self._rounds: Beside[Optimizer, int] = Beside()  # steps of an optimizer
        self._backwards = 0  # since the last step of an optimizer
        self._per_step = Counter[int]()  # steps by the number of them
        self._metrics: Beside[LRScheduler, tuple[float, list[float] | None]] = Beside()  # first rate, what it was told; None: no more

    def called(self, call: LoopCall) -> None:
        if call.kind == "scheduler" and isinstance(call.target, ReduceLROnPlateau):
            self._wait(call.target, call.given(0, "metrics"))
        elif call.kind == "scheduler":
            if PAST_END not in self.spoken:
                self._ends(call)
            if self.subject.num % EVERY < STRETCH:
                self._follow(call)

    def _wait(self, scheduler: ReduceLROnPlateau, metric: Any) -> None:
        """Whether what it is told has only ever become worse in its eyes, and it has lowered the rate for that."""
        rate = scheduler.optimizer.param_groups[0]["lr"]
        first_rate, told = self._metrics.get(scheduler) or (rate, [])
        if told is None:
            return
        if isinstance(metric, Real) or (isinstance(metric, Tensor) and metric.is_cpu):
            told.append(float(metric))
        worse = [one > told[0] if scheduler.mode == "min" else one < told[0] for one in told[1:]]
        self._metrics[scheduler] = first_rate, told if all(worse) and len(told) < MOST_METRICS else None
        if len(told) >= LEAST_METRICS and all(worse) and rate < first_rate:
            half = len(told) // 2
            early, late = (abs(sum(part) / len(part) - told[0]) for part in (told[1:half], told[half:]))
            if late > early:
                other = "max" if scheduler.mode == "min" else "min"
                line, kind = current_line(), f"ReduceLROnPlateau(mode={scheduler.mode!r})"
                text = f"{kind} has lowered the rate{line.at()}: none of {len(told)} metrics was better than the first, "
                text += f"{told[0]:.4g}, and they go on to {told[-1]:.4g}."
                self.say(text, f"If that is the better way, make it with mode={other!r}.", rule=WRONG_WAY, line=line, asks=True)

    def _ends(self, call: LoopCall) -> None:
        if _has_end(call.target) and 0 < (length := _length_of(call.target)) < (steps := getattr(call.target, "last_epoch", 0)):
            line, kind = current_line(), type(call.target).__name__
            text = f"{kind} has stepped {steps} times{line.at()}, and is made for {length}: the rate rises again, or stays at its end."
            advice = "Give its length in the unit in which it steps (steps, not epochs), or take CosineAnnealingWarmRestarts."
            self.say(text, advice, rule=PAST_END, line=line, asks=True)

    def _follow(self, call: LoopCall) -> None:
        optimizer = getattr(call.target, "optimizer", None)
        if self.name in self.spoken:
            return
        if isinstance(optimizer, Optimizer) and getattr(call.target, "last_epoch", 0) > 1 and not getattr(optimizer, "_opt_called", False):
            others = [each for each in self._rounds if each is not optimizer and not ids_of(each).isdisjoint(ids_of(optimizer))]
            if others:
                line, kind, other = current_line(), type(optimizer).__name__, type(others[0]).__name__
                text = f"{type(call.target).__name__} steps{line.at()} for {kind}, which does not step: another one, {other}, updates."
                self._tell(text, "Make the scheduler for the optimizer that is stepped.", line)
                return
        if not isinstance(optimizer, Optimizer) or call.given(0, "epoch") is not None or not self.subject.optimizers.owns(optimizer):
            return
        rhythm = self._rhythms.get(call.target)
        if rhythm is None:
            rhythm = self._rhythms[call.target] = _Rhythm()
        rhythm.lines.append(current_line())

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        self._backwards += 1
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
            each = self._per_step.most_common(1)[0][0] if self._per_step else 0
            if each > 1 and LEAST_STEPS <= made <= steps + 1 and abs(length - made * each) <= made * each / 20:
                text = f"{type(scheduler).__name__} is made for {length} steps, and {made} were made, of {each} backwards each: its rates "
                text += "come to the end of their way after as many backwards, not steps."
                advice = "Give it the number of optimizer steps: batches // accumulation steps."
                self.say(text, advice, rule=FAR_FROM_END, value=float(made), limit=float(length), asks=True)
            if 0 < made * RARE <= steps and steps / 2 <= length <= 2 * steps:
                text = f"{type(scheduler).__name__} is made for {length} steps, about as many as {type(optimizer).__name__} has made, and "
                text += f"has stepped {made} times: its rates never came."
                advice = "Call scheduler.step() after each optimizer.step(), or give its length in epochs."
                self.say(text, advice, rule=FAR_FROM_END, value=float(made), limit=float(length), asks=True)

    def _round(self, optimizer: Optimizer) -> None:
        """The optimizer steps: how often has its scheduler since its last one?"""
        rounds = self._rounds[optimizer] = self._rounds.get(optimizer, 0) + 1
        self._backwards, count = 0, self._backwards
        self._per_step[count] += 1
        if self.name in self.spoken:
            return
        for scheduler, rhythm in list(self._rhythms.items()):
            if rhythm.lines and scheduler.optimizer is optimizer:
                lines, between = rhythm.lines, 0 < rhythm.before < len(rhythm.lines)
                rhythm.lines, rhythm.before = [], 0
                if rounds == 1:  # a run that goes on from a checkpoint winds its scheduler forward
                    continue
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
    if parts := getattr(scheduler, "_schedulers", None):
        return int((getattr(scheduler, "_milestones", None) or [0])[-1]) + _length_of(parts[-1])
    names = ("total_steps", "T_max", "total_iters")
    if wanted := getattr(next(iter(getattr(scheduler, "lr_lambdas", ())), None), "keywords", None):  # transformers' schedules
        return int(wanted.get("num_training_steps") or 0)
    return next((int(v) for name in names if isinstance(v := getattr(scheduler, name, None), int | float) and math.isfinite(v)), 0)


def _has_end(scheduler: LRScheduler) -> bool:
    """Whether its rates are none for training on once it has come to its end."""
    last = (getattr(scheduler, "_schedulers", None) or [scheduler])[-1]
    return isinstance(last, CosineAnnealingLR | LambdaLR)
