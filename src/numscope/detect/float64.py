"""Does a step's calls once more beside float64: which operation is wrong, and where the step's precision is lost."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from operator import itemgetter

import torch
from torch import Tensor

from numscope.config.options import how_to_set
from numscope.detect.asked import Answer, AskedCalls, at, facts, share
from numscope.distributed.agree import has_group
from numscope.records.alert import Alert
from numscope.records.site import Phase, tensor_of
from numscope.replay.call import do_again, script_line
from numscope.replay.capture import Call
from numscope.replay.reasons.case import attribute
from numscope.replay.shadows import Off, Shadows, distance, widened
from numscope.replay.stages import FINITE, FORWARD_FINITE, Stages
from numscope.replay.tape import OpRecord, State

WRONG_RESULT = "wrong result"
LOST = "precision is lost"
MOSTLY_ROUNDING = 0.5  # of a gradient as a whole, in float16 or bfloat16
ROUGH_OUTPUT = 0.25  # of what a call returns
MUCH = 0.1  # of both, in float32
_LEAP = 8.0  # by which one operation multiplies an error where it is said to lose the precision
_MOST_NAMED = 8


def ask(subject: AskedCalls) -> Answer:
    """Do each call again, with its backward, and each of its operations in float64 too.

    *Cost:* some ten times the call; in float64 all that it reads and makes lies in memory at once, at most half of what is free.
    """
    alerts, undone, numbers = list[Alert](), list[str](), ""
    for call in subject.calls:
        beside = WithShadows(call, subject)
        status = do_again(beside, subject.buffers, any(call.gradients)).status
        if status not in (FINITE, FORWARD_FINITE):
            undone.append(f"not done in float64: {status}")
            continue
        found, numbers = beside.judged()
        alerts += found
        if names := sorted(beside.shadows.unasked):
            undone.append(f"without {', '.join(names)}, which {'do' if names[1:] else 'does'} not run in float64")
    return Answer(alerts, undone, numbers)


def _room(device: torch.device) -> int:
    """Half of the memory that is free, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) // 2
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


class WithShadows(Stages):
    """A call's forward and backward with float64 beside it."""

    seeks = False

    def __init__(self, call: Call, subject: AskedCalls) -> None:
        super().__init__(call, subject.names, has_group(), None)
        device = next((t.device for module in self.names for t in module._parameters.values() if t is not None), torch.device("cpu"))
        self.shadows = Shadows(self.tape, _room(device), subject.is_apart)
        self.step = subject.step
        self.found: list[tuple[str, Tensor, State | None]] = []  # parameters' gradients

    @contextlib.contextmanager
    def _probed(self, phase: Phase) -> Iterator[None]:
        with self.shadows, super()._probed(phase):
            yield

    def _gave(self, gradients: Sequence[Tensor | None]) -> None:
        for (name, _), g in zip(self.parameters, gradients, strict=True):
            if g is not None and g.layout is torch.strided:
                self.found.append((name, g, self.tape.state_of(g)))

    def judged(self) -> tuple[list[Alert], str]:
        """Alerts, and a text on how far the call's results are from float64."""
        records, of = self.tape.records, self.shadows.of
        outputs = [(distance(t, of(t)), slot, t) for (_, slot), t in self.outputs if t.is_floating_point() and t.numel()]
        output, slot, tensor = max(outputs, key=itemgetter(0), default=(math.nan, "", None))
        both = [(widened(g), of(g)) for _, g, _ in self.found]
        apart, size, own = (
            math.fsum(float(t.abs().square().sum()) for t in all_)
            for all_ in ([a - b for a, b in both], [b for _, b in both], [a for a, _ in both])
        )
        gradient = math.sqrt(apart / size) if size else math.nan
        if not math.isfinite(apart + size) or (outputs and not math.isfinite(output)):
            return [], "beside float64 the step is not finite: nothing is said of it"
        said = [f"what the model returned is off by {share(output)}"] if outputs else []
        said += [f"the gradient of all parameters {'' if outputs else 'is off '}by {share(gradient)}"] if size else []
        numbers = f"beside float64 {', '.join(said)}" if said else ""
        if self.shadows.off:
            return [self._wrong(off, records[off.index]) for off in self.shadows.off[:_MOST_NAMED]], numbers
        if tensor is not None and output >= MUCH:
            lost = self._lost(slot, output, ROUGH_OUTPUT, "", self.tape.state_of(tensor), self.call.name)
            if lost is not None:
                return [lost], numbers
        if gradient >= MUCH:
            name, _, state = max(zip(self.found, both, strict=True), key=lambda one: float((one[1][0] - one[1][1]).norm()))[0]
            cosine = (own + size - apart) / 2 / math.sqrt(own * size) if own else 0.0
            more = f" (cosine {cosine:.2f}; most of it in {name})"
            lost = self._lost("the gradient of all parameters", gradient, MOSTLY_ROUNDING, more, state, name.rpartition(".")[0])
            return [] if lost is None else [lost], numbers
        return [], numbers

    def _wrong(self, off: Off, record: OpRecord) -> Alert:
        line = script_line(record, self.call)
        text = (
            f"{record.op} ({record.phase.value}){at(line)}: its result is off by {share(off.error, 'its largest element')} from what its "
            f"operands give in float64; rounding ({_name(off.dtype)}) explains {share(off.rounding, 'it')}."
        )
        advice = "Run it on the same operands in another dtype, on a CPU, or in plain operations; the kernel, or the machine, is at fault."
        evidence = facts(record.op, line, error=off.error, rounding=off.rounding)
        return Alert(self.step, WRONG_RESULT, record.module, tensor_of(record.phase, "output"), off.error, None, text, advice, evidence)

    def _lost(self, what: str, error: float, least: float, more: str, state: State | None, module: str) -> Alert | None:
        """Follow the largest error back, to the operation that multiplies it most.

        Args:
            least: the smallest error that is told of where a narrow dtype is on the way.
            module: which is named where none does by much.
        """
        path, writers = list[tuple[float, float, OpRecord]](), state.writers if state is not None else ()
        while of := [w for w in writers if w in self.tape and (not path or w < path[-1][2].index)]:
            record = self.tape[max(of, key=self._error)]
            writers = tuple(w for o in record.inputs if o.state is not None for w in o.state.writers)
            before = max((self._error(w) for w in writers), default=0.0)
            path.append((self._error(record.index), before, record))
        of_all = {o.dtype for _, _, r in path for o in (*r.inputs, *r.outputs) if o.dtype is not None and o.dtype.is_floating_point}
        is_narrow = any(d.itemsize < torch.float32.itemsize for d in of_all)
        if is_narrow and error < least:
            return None
        unit = max((torch.finfo(d).eps / 2 for d in of_all), default=0.0)
        after, before, worst = max(path, key=lambda one: one[0] / max(one[1], unit)) if path else (0.0, 0.0, None)
        rounding = f"the rounding of {' and '.join(sorted(map(_name, of_all))) or 'its dtype'}"
        text = f"{what} is off from float64 by {share(error)}, through {rounding}{more}"
        if worst is not None and after >= _LEAP * max(before, unit):
            module, line = worst.module, script_line(worst, self.call)
            text += f"; most is lost in {worst.op} ({worst.phase.value}){at(line)}: "
            text += f"operands off by {share(before, 'their size')}, the result by {share(after)}."
            evidence = facts(worst.op, line, error=error)
        else:
            text, evidence = f"{text}, which many operations lose together.", facts("", ("", 0, ""), error=error)
        wider = f"numscope.high_precision({attribute(module)})" if is_narrow else "Compute it in float64"
        advice = f"{wider}, or in a form that loses less there. If it is meant so: {how_to_set(LOST, False)}."
        return Alert(self.step, LOST, module, "", error, None, text, advice, evidence, asks=True)

    def _error(self, index: int) -> float:
        return self.shadows.errors.get(index, 0.0)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
