"""Does steps again, now and then, to see whether they come out the same; and says what came of it, as alerts."""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from numscope.config.check_plan import CAPSULE, CheckPlan
from numscope.config.options import how_to_set
from numscope.detect import eager, float64
from numscope.detect.across_ranks import AcrossRanks, RankSums
from numscope.detect.again import Bits, Cause, Checked, Difference, Incoming, bits_of, compare
from numscope.detect.asked import Answer, AskedCalls, at, facts
from numscope.detect.evidence import Evidence
from numscope.detect.parameters import parameters_of
from numscope.detect.update_again import UpdateAgain
from numscope.distributed import agree
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.calls import in_backward
from numscope.probe.module import ModuleProbe
from numscope.probe.optimizers import gradient_of
from numscope.probe.step import StepReader
from numscope.records.alert import Alert
from numscope.records.observation import Observation
from numscope.records.places import place
from numscope.records.site import Phase, tensor_of
from numscope.records.words import count
from numscope.replay.capture import Call, attributes_now
from numscope.replay.fork import MOST_SECONDS, in_child
from numscope.replay.function_gradients import AppliedOutside, WrongGradient, examine, examined
from numscope.report.stderr import say
from numscope.summary.state import Groups

log = logging.getLogger("numscope")

T = TypeVar("T")

NOT_THE_SAME = "step is not reproducible"
HARDWARE = "suspected hardware"
WRONG_GRADIENT = "wrong gradient"
LOOKS = 2  # steps that are checked after one that was not the same: what is broken shows elsewhere then, or not at all
ROUNDING = 3  # a flip of one of so many lowest bits may be one: some libraries' results depend on where in memory their operands lie

_WHY = {
    Cause.RANDOM: "It draws random numbers, from a generator that is none of torch's, NumPy's or Python's own.",
    Cause.UNINITIALIZED: "It reads memory that nothing has written.",
    Cause.NONDETERMINISTIC: "Its operands were the same, bit for bit.",
    Cause.STATE: "It depends on what lies outside of the model, or what the call changes itself: a counter, a cache, a clock, a generator, "
    "what is written through .data or by another thread.",
}
_ADVICE = {
    Cause.RANDOM: "Keep that generator's state with the checkpoints, or draw from torch's own.",
    Cause.UNINITIALIZED: "Make that tensor by zeros or full in place of empty.",
    Cause.NONDETERMINISTIC: "torch.use_deterministic_algorithms(True) makes such operations deterministic, or names those that can't be.",
    Cause.STATE: "If that is meant, nothing is wrong; but a run that goes on from a checkpoint goes on without it.",
}


def ask_gradients(subject: AskedCalls) -> Answer:
    """One alert for each module that runs a wrong one."""
    found, undone = dict[str, list[WrongGradient]](), ""
    of_calls = (examine(call, subject.names, subject.buffers) for call in subject.calls)
    for several, why in (*of_calls, examined(subject.functions)):
        undone = undone or why
        for wrong in several:
            found.setdefault(wrong.module, []).append(wrong)
    alerts = [_wrong_gradients(subject.step, name, {(one.function, one.operand): one for one in all_}) for name, all_ in found.items()]
    return Answer(alerts, (undone,) if undone else ())


def _wrong_gradients(step: int, module: str, several: Mapping[tuple[str, str], WrongGradient]) -> Alert:
    said = []
    for wrong in several.values():
        backward = f" ({place(*wrong.backward)})" if wrong.backward[0] else ""
        said.append(f"{wrong.function}'s backward{backward} gives {wrong.operand} a gradient that is {wrong.kind}.")
    first = next(iter(several.values()))
    line = first.file, first.line, first.code
    text = f"By differences of its forward in {first.dtype}{at(line) and ', applied'}{at(line)}: {' '.join(said)}"
    advice = f"Compare it by torch.autograd.gradcheck. If it is meant so (a surrogate gradient): {how_to_set(WRONG_GRADIENT, False)}."
    return Alert(step, WRONG_GRADIENT, module, "", None, None, text, advice, facts("", line), asks=True)


_ASKED: dict[str, Callable[[AskedCalls], Answer]] = {"gradients": ask_gradients, "float64": float64.ask, "eager": eager.ask}


def _unanswered(kind: str, why: str) -> Answer:
    return Answer(undone=(f"{kind}: {why}",))


class Experiments(StepReader):
    """Those on one model's steps.

    Args:
        evidence: the step at work.
        wrapper: what the user watches, perhaps a DDP around the model.
        leaves_out: steps are left out that are not finite. Whether these come out the same is asked of each (``again``).

    Attributes:
        post: takes alerts.
        keep: takes rows for the run's folder.

    *Cost:* on a step that is checked sums of all tensors, and its calls once more; on others nothing.
    """

    def __init__(self, evidence: Evidence, probe: ModuleProbe, plan: CheckPlan, wrapper: nn.Module, leaves_out: bool) -> None:
        self._evidence, self._probe, self._plan = evidence, probe, plan
        self._asks_bad = leaves_out and "again" in plan.kinds
        self._incoming: Incoming | None = None  # gradients, of one rank of several, before these average them within the backward
        self.post: Callable[[Iterable[Alert]], None] = lambda found: None
        self.keep: Callable[[Sequence[Observation]], None] = lambda rows: evidence.history.keep(rows) if evidence.history else None
        self.closed = False
        self._step = -1  # that is checked, if it is due or bad
        self._is_due = False
        self._begins_bare = False  # no parameter had a gradient when it began
        self._done: set[int] = set()  # numbers of its calls
        self._suspect: tuple[int, Difference] | None = None
        self._looks: list[tuple[int, Difference | None]] = []  # at the steps after it, and which
        self._said: set[str] = set()
        self._differed = False  # a step before did, and not by one flipped bit
        self._versions: list[int] = []  # of the weights, as the step's first call began
        self._num_asked = Counter[str]()  # steps, by kind
        self._outside = AppliedOutside(probe.names)
        self._updates = UpdateAgain(probe.names)
        self._across = AcrossRanks(probe, wrapper) if "rank" in plan.kinds else None
        self._is_rounding = False  # most of the gradient at the last step for which it was asked: a deep model's first steps may be so

    def failed(self, error: Exception) -> None:
        """An error of ours ends the experiments, and nothing else."""
        self.detach()
        log.error("numscope: no step is checked any more: %s: %s", type(error).__name__, error, exc_info=error)

    def detach(self) -> None:
        """Nothing is checked any more. Safe to call twice."""
        if not self.closed:
            self.closed = True
            self._outside.end()
            self._came_in()
            self._evidence.journal.ledger.want(Groups.HEALTH)
            self._evidence.steps.remove(self)

    @optimizer_probe.guarded()
    def began(self) -> None:
        """A call has begun, and nothing of it has been seen yet."""
        step = self._evidence.step
        if self._suspect is not None and len({at for at, _ in self._looks} - {self._suspect[0]}) >= LOOKS and step != self._step:
            self._conclude()
        due = self._plan.is_due(step) or self._suspect is not None or (self._across is not None and self._across.is_due(step))
        if due or self._is_due:
            self._evidence.journal.ledger.want(Groups.ALL if due else Groups.HEALTH)
        self._is_due = due
        noted = due or self._asks_bad
        if self._step != step:
            self._came_in()
            if due and agree.num_ranks() > 1 and "again" in self._plan.kinds:
                self._incoming = Incoming(dict(self._parameters()))
        if noted and self._step != step:
            self._done.clear()
            self._versions = self._versions_now()
            self._begins_bare = all(gradient_of(p) is None for p in self._probe.root.parameters())
        self._step = step if noted else -1
        if "gradients" in self._plan.kinds and self._plan.is_due(step):
            self._outside.begin()
        else:
            self._outside.end()
        if noted and self._evidence.calls:
            self._evidence.calls[-1].attributes = attributes_now(self._probe.names)
        if self._across is not None:
            self.post(self._across.look(step))

    @optimizer_probe.guarded()
    def after_backward(self) -> None:
        """A backward of the step has ended: nothing has changed gradients or weights yet."""
        evidence, here = self._evidence, get_ident()
        functions = self._outside.end() if not in_backward() else []
        calls = [c for c in evidence.calls if c.index not in self._done and c.thread == here and not c.raised]
        if evidence.step != self._step or not calls or in_backward():
            return
        came_in = self._came_in()
        evidence.read()
        is_bad = evidence.journal.any_bad()
        if not (self._asks_bad if is_bad else self._is_due):
            return
        if self._versions != self._versions_now():
            return self._tell("weights have been written since the call began, as by an optimizer's step within the backward")
        is_first = not self._done
        self._done |= {call.index for call in calls}
        gradients: dict[str, Bits] = {}
        is_whole = is_first and len(evidence.calls) == len(calls)
        if is_whole and came_in is not None:
            gradients = came_in
        elif is_whole and self._begins_bare:
            found = ((name, gradient_of(p)) for name, p in self._parameters())
            gradients = bits_of({name: g for name, g in found if g is not None})
        self._num_asked.update(self._plan.kinds if is_first and self._plan.is_due(self._step) else ())
        if "again" in self._plan.kinds:
            self._take(self._apart("again", lambda: self._compared(calls, gradients), lambda why: Checked(None, f"not done again: {why}")))
        if is_bad:
            return
        subject = AskedCalls(self._step, calls, self._probe.names, evidence.buffers, os.getpid(), functions)
        if self._across is not None:
            self._ask_across(self._across, subject)
        for kind, ask in _ASKED.items() if self._plan.is_due(self._step) else ():
            if kind in self._plan.kinds:
                self._answered(kind, self._apart(kind, partial(ask, subject), partial(_unanswered, kind)), subject)
        if "precision" in self._plan.kinds and self._plan.is_due(self._step) and is_first:
            self._weigh(calls)

    @optimizer_probe.guarded()
    def before_step(self, optimizer: Optimizer) -> None:
        """Gradients are what it gets."""
        if "again" in self._plan.kinds and self._evidence.step == self._step and self._is_due:
            with self._evidence.outside.asleep():
                self._tell(self._updates.before(optimizer))

    @optimizer_probe.guarded()
    def after_step(self, optimizer: Optimizer) -> None:
        """Weights have moved."""
        found, _ = self._updates.after(optimizer)
        if found is None or self._suspect is None:
            self._judge(found)
        elif self._suspect[0] != self._step:
            self._looks.append((self._step, found))

    @optimizer_probe.guarded()
    def skipped_step(self, optimizer: Optimizer) -> None:
        """It did not take place."""
        self._updates.forget(optimizer)

    @optimizer_probe.guarded()
    def close(self) -> None:
        """The watch ends."""
        self._outside.end()
        self._came_in()
        if self._suspect is not None:
            self._conclude()
        if agree.rank() == 0 and self._evidence.steps.num_steps:
            asked = ", ".join(f"{kind} at {count(num, 'step')}" for kind, num in self._num_asked.items() if kind != CAPSULE)
            say(f"numscope: {self._evidence.model}: checked: {asked or f'no step; {self._plan.when()}'}.")
        if self._across is not None:
            self.post(self._across.look(-1))

    def _ask_across(self, across: AcrossRanks, subject: AskedCalls) -> None:
        why = across.begin(subject.step, subject.calls[0])
        if not why and across.can_ask(subject.step):
            sums = self._apart("rank", partial(across.ask, subject), lambda why: RankSums(undone=why))
            why = sums.undone
            if not why:
                across.leave(subject.step, sums)
        self._tell(why and f"not compared with other ranks: {why}")

    def _answered(self, kind: str, answer: Answer, subject: AskedCalls) -> None:
        if answer.alerts and kind == "eager":
            closer = self._apart(
                "eager, operation by operation", partial(eager.look_closer, subject), partial(_unanswered, kind), confined=False
            )
            answer = Answer(closer.alerts or answer.alerts, (*answer.undone, *closer.undone), answer.numbers)
        for undone in answer.undone:
            self._tell(undone)
        if answer.numbers and kind not in self._said and agree.rank() == 0:
            self._said.add(kind)
            say(f"numscope: step {self._step}: {answer.numbers}.")
        self.post(answer.alerts)

    def _apart(self, kind: str, work: Callable[[], T], failed: Callable[[str], T], *, confined: bool = True) -> T:
        """The result of work in a process of its own, as many threads as here; where there can be none, of work that puts all back."""

        def lasts() -> None:
            if agree.rank() == 0:
                say(f"numscope: step {self._step} is being checked ({kind}), at most {MOST_SECONDS // 60} minutes; then the run goes on.")

        with optimizer_probe.paused(), self._evidence.outside.asleep():
            done = in_child(work, failed, num_threads=torch.get_num_threads(), confined=confined, lasts=lasts)
            return work() if done is None else done

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((f"{module}.{slot}".lstrip("."), p) for module, slot, p in parameters_of(self._probe.names))

    def _came_in(self) -> dict[str, Bits] | None:
        incoming, self._incoming = self._incoming, None
        return None if incoming is None else incoming.end()

    def _compared(self, calls: list[Call], gradients: dict[str, Bits]) -> Checked:
        return compare(self._probe, self._evidence.buffers, self._evidence.journal, calls, gradients)

    def _weigh(self, calls: list[Call]) -> None:
        """Measure what low precision does to the gradient of the step's first backward: a line, rows, perhaps an alert."""
        from numscope.detect.low_precision import Weighed, weigh  # loads the recipes, which other checks do not need

        names, buffers, step, rank = self._probe.names, self._evidence.buffers, self._step, agree.rank()
        found = self._apart("precision", lambda: weigh(names, buffers, calls, step, rank), lambda why: Weighed(undone=why))
        self._tell(found.undone)
        if found.gaps:
            if rank == 0:
                say(f"numscope: step {step}: {self._evidence.model}: {found.text()}")
            self.keep(found.rows)
            alert = found.alert(step)
            self.post([alert] if alert is not None and self._is_rounding else [])
            self._is_rounding = alert is not None

    def _take(self, checked: Checked) -> None:
        self._tell(checked.undone)
        if self._suspect is not None:
            self._looks.append((self._step, checked.difference))
        else:
            self._judge(checked.difference)

    def _judge(self, found: Difference | None) -> None:
        if found is not None and found.cause is Cause.UNKNOWN:
            self._suspect, self._looks = (self._step, found), []
        elif found is not None:
            self.post([self._alert(self._step, found, [])])
            self._differed = True

    def _tell(self, undone: str) -> None:
        """Once of each."""
        if undone and undone not in self._said:
            self._said.add(undone)
            log.log(logging.INFO if agree.rank() else logging.WARNING, "numscope: step %d was not checked in full: %s.", self._step, undone)

    def _conclude(self) -> None:
        assert self._suspect is not None
        (step, found), looks, self._suspect = self._suspect, self._looks, None
        alert = self._alert(step, found, looks)
        self.post([alert])
        self._differed = self._differed or alert.rule != HARDWARE

    def _versions_now(self) -> list[int]:
        return [p._version for p in self._probe.root.parameters() if not p.is_inference()]

    def _alert(self, step: int, found: Difference, looks: list[tuple[int, Difference | None]]) -> Alert:
        line = place(found.file, found.line) if found.file else ""
        num = len(found.before)
        before = f" or {f'one of {num} operations' if num > 1 else 'the operation'} before it" if num else ""
        if found.phase is Phase.OPTIMIZER and found.bit < 0:  # what one of many numbers on the way has become
            before = " or one before it"
        slot, _, state = found.slot.partition(": ")
        at = f"{found.op} ({found.phase.value}){f' at {line}' if line else ''}{before}: " if found.op else ""
        at += state and f"{state}: "
        evidence: dict[str, Any] = {
            "cause": found.cause.value,
            "op": found.op,
            "line": line and f"{found.file}:{found.line}",
            "code": found.code,
        }
        where = step, NOT_THE_SAME, found.module, tensor_of(found.phase, slot), None, None
        others = [look for _, look in looks if look is not None]
        is_flip = all(one.bit >= ROUNDING for one in (found, *others))  # no counter changes one bit of one element
        repeats = any((one.module, one.slot, one.phase) == (found.module, found.slot, found.phase) for one in others) and not is_flip
        if found.cause is not Cause.UNKNOWN or repeats:
            cause = Cause.STATE if repeats else found.cause
            return Alert(*where, f"{at}other bits when its call is done again. {_WHY[cause]}", _ADVICE[cause], evidence, asks=True)
        device = next((str(p.device) for p in self._probe.root.parameters()), "cpu")
        host, rank = socket.gethostname(), agree.rank()
        num = len({at for at, _ in looks if at != step})
        after = "no later step could be checked."
        if num:
            differ = f"{len(others)} of their calls gave other bits{', by one flipped bit each' if is_flip else ''}."
            after = f"{count(num, 'step')} after it {'was' if num == 1 else 'were'} checked too: {differ if others else 'all the same.'}"
        evidence |= {"host": host, "device": device, "pid": os.getpid(), "before": list(found.before)}
        flip = f" ({found.flip})" if found.flip else ""
        text = f"{at}other bits than when its call was done again, three times the same{flip}; on {host}, {device}, rank {rank}; {after}"
        test = f"Test {device} of {host} (a GPU: dcgmi diag -r 3; memory: memtest)"
        if is_flip and not self._differed:
            return Alert(step, HARDWARE, *where[2:], text, f"{test}, and leave it out of the job until it has passed.", evidence)
        advice = f"If nothing outside of the model explains it (a clock, another thread, a cache), it may be the machine. {test}."
        return Alert(*where, text, advice, evidence, asks=True)
