"""Does a step's calls once more beside float64: which operation is wrong, and where the step's precision is lost."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from numscope.distributed.agree import has_group
from numscope.probe.calls import heard
from numscope.records.site import Phase
from numscope.replay.call import do_again, script_line
from numscope.replay.capture import BufferCopies, Call
from numscope.replay.op import OpProbe
from numscope.replay.shadows import Off, Shadows, distance
from numscope.replay.stages import FINITE, FORWARD_FINITE, ModuleStack, Stages, run_stages
from numscope.replay.tape import OpRecord, State

MOSTLY_ROUNDING = 0.5  # of a gradient as a whole
ROUGH_OUTPUT = 0.25  # of what a call returns
_LEAP = 8.0  # by which one operation multiplies an error where it is said to lose the precision
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Wrong:
    """An operation that does not give what its operands give in float64; ``error`` and ``rounding`` as of ``Off``."""

    op: str
    phase: Phase
    module: str
    line: tuple[str, int, str]
    error: float
    rounding: float
    dtype: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A call's output, or the gradient of all parameters, that is rounding to a large part.

    Args:
        what: ``output[0]``, or the name of the parameter whose gradient's error weighs most.
        module: of the operation, else the call's or the parameter's.
        error: the distance from float64, of the norm there; ``cosine``: of the gradient with that in float64, nan of outputs.
        op: the operation that multiplies the error most on the way, "" if none does by much; with its line.
        before: the error of its operands; ``after``: of its result.
        dtypes: of the operands and results on the way there, other than float32 if there are such.
    """

    what: str
    phase: Phase
    module: str
    error: float
    cosine: float
    op: str
    line: tuple[str, int, str]
    before: float
    after: float
    dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of one call.

    Args:
        output, gradient: the errors of what it returned and of the parameters' gradients; nan: there are none.
        unasked: names of operators that do not run in float64.
        undone: why it was not done, or not in whole; "" if all was.
    """

    wrong: tuple[Wrong, ...] = ()
    lost: Lost | None = None
    output: float = math.nan
    gradient: float = math.nan
    unasked: tuple[str, ...] = ()
    undone: str = ""


def compare(call: Call, names: Mapping[nn.Module, str], buffers: BufferCopies, foreign: bool) -> Compared:
    """Do a call again, with its backward, and each of its operations in float64 too.

    Args:
        foreign: operators that are not torch's own may be asked, which may end the process.

    *Cost:* some ten times the call; in float64 all that it reads and makes lies in memory at once, at most half of what is free.
    """
    stages = _Beside(call, names, foreign)
    done = do_again(stages, buffers, any(call.gradients))
    if done.status not in (FINITE, FORWARD_FINITE):
        return Compared(undone=done.status)
    return stages.compared()


def _room(device: torch.device) -> int:
    """Half of the memory that is free, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) // 2
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


class _Beside(Stages):
    """A call's forward and backward with float64 beside it."""

    seeks = False

    def __init__(self, call: Call, names: Mapping[nn.Module, str], foreign: bool) -> None:
        super().__init__(call, names, has_group(), None)
        device = next((t.device for module in names for t in module._parameters.values() if t is not None), torch.device("cpu"))
        self.shadows = Shadows(self.tape, _room(device), foreign)
        self.found: list[tuple[str, Tensor, State | None]] = []  # parameters' gradients

    @contextlib.contextmanager
    def _probed(self, phase: Phase) -> Iterator[None]:
        with heard(), ModuleStack(self.names) as stack, self.shadows, OpProbe(
            self.tape, self.rows, phase=phase, module_name=stack.current, names=self.slots, boundary=run_stages.__code__, lone=self.lone,
            spared=self.spared,
        ):  # fmt: skip
            yield

    def _gave(self, gradients: Sequence[Tensor | None]) -> None:
        for (name, _), g in zip(self.parameters, gradients, strict=True):
            if g is not None:
                self.found.append((name, g, self.tape.state_of(g)))

    def compared(self) -> Compared:
        records = self.tape.records
        wrong = [self._wrong(off, records[off.index]) for off in self.shadows.off[:_MOST_NAMED]]
        outputs = [(slot, t, distance(t, self.shadows.of(t))) for (_, slot), t in self.outputs if t.is_floating_point() and t.numel()]
        worst = max(outputs, key=lambda one: one[2], default=None)
        output = worst[2] if worst is not None else math.nan
        both = [(g.detach().double(), self.shadows.of(g)) for _, g, _ in self.found]
        apart, size, told = (
            math.fsum(float(v) for v in values)
            for values in zip(*(((a - b).square().sum(), b.square().sum(), a.square().sum()) for a, b in both), strict=True)
        ) if both else (0.0, 0.0, 0.0)  # fmt: skip
        gradient = math.sqrt(apart / size) if size else math.nan
        lost = None
        if gradient >= MOSTLY_ROUNDING and not wrong:
            name, _, state = max(zip(self.found, both, strict=True), key=lambda one: float((one[1][0] - one[1][1]).norm()))[0]
            cosine = (told + size - apart) / 2 / math.sqrt(told * size) if told else 0.0
            lost = self._lost(name, Phase.BACKWARD, gradient, cosine, state)
        if worst is not None and output >= ROUGH_OUTPUT and not wrong:
            lost = self._lost(worst[0], Phase.FORWARD, output, math.nan, self.tape.state_of(worst[1]))
        return Compared(tuple(wrong), lost, output, gradient, tuple(sorted(self.shadows.unasked)))

    def _wrong(self, off: Off, record: OpRecord) -> Wrong:
        line = script_line(record, self.call)
        return Wrong(record.op, record.phase, record.module, line, off.error, off.rounding, _name(off.dtype))

    def _lost(self, what: str, phase: Phase, error: float, cosine: float, state: State | None) -> Lost:
        """Follow the largest error back, to the operation that multiplies it most."""
        path, writers = list[tuple[float, float, OpRecord]](), state.writers if state is not None else ()
        while of := [w for w in writers if w in self.tape and (not path or w < path[-1][2].index)]:
            record = self.tape[max(of, key=self._error)]
            writers = tuple(w for o in record.inputs if o.state is not None for w in o.state.writers)
            before = max((self._error(w) for w in writers), default=0.0)
            path.append((self._error(record.index), before, record))
        of_all = {o.dtype for _, _, r in path for o in (*r.inputs, *r.outputs) if o.dtype is not None and o.dtype.is_floating_point}
        dtypes = tuple(sorted(_name(d) for d in of_all))
        unit = max((torch.finfo(d).eps / 2 for d in of_all), default=0.0)
        after, before, worst = max(path, key=lambda one: one[0] / max(one[1], unit)) if path else (0.0, 0.0, None)
        if worst is None or after < _LEAP * max(before, unit):
            module = what.rpartition(".")[0] if phase is Phase.BACKWARD else self.call.name
            return Lost(what, phase, module, error, cosine, "", ("", 0, ""), 0.0, 0.0, dtypes)
        return Lost(what, worst.phase, worst.module, error, cosine, worst.op, script_line(worst, self.call), before, after, dtypes)

    def _error(self, index: int) -> float:
        return self.shadows.errors.get(index, 0.0)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
