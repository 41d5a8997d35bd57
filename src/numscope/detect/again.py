"""Does a step's calls once more as they were, and compares what modules gave then and now, bit by bit."""

from __future__ import annotations

import contextlib
import enum
import struct
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from numscope.detect.journal import Journal
from numscope.distributed.agree import has_group
from numscope.probe.calls import heard
from numscope.probe.module import ModuleProbe
from numscope.records.faults import ours
from numscope.records.site import Phase
from numscope.replay.call import do_again, script_line
from numscope.replay.capture import BufferCopies, Call
from numscope.replay.op import UNINITIALIZED
from numscope.replay.stages import FINITE, FORWARD_FINITE, Stages
from numscope.replay.tape import UNOBSERVED, OperandRecord, OpRecord, OpTape
from numscope.summary.ledger import Ledger
from numscope.summary.state import ROW_WIDTH, Groups, Summary
from numscope.summary.unseen import unseen

_ROW = struct.Struct(f"{ROW_WIDTH}d")
_AS_BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float64: torch.int64}
_LOST = (16, 13)  # lowest bits of float32 that bfloat16 and float16 lack
_MOST_NAMED = 32  # operations
_Key = TypeVar("_Key")
Bits = tuple[bytes, str]  # a tensor's row, which has its sums, and its dtype


class Cause(enum.Enum):
    """Why a call gives other bits when it is done again."""

    RANDOM = "random"  # a generator that was not put back
    UNINITIALIZED = "uninitialized"
    NONDETERMINISTIC = "nondeterministic"  # an operation that gives other bits from equal operands
    STATE = "state"  # an operation that gets other numbers from outside of the model, or that runs at one time alone
    UNKNOWN = "unknown"  # done twice more it gives equal bits


@dataclass(frozen=True, slots=True)
class Difference:
    """The first tensor of a step that has other bits when its call is done again.

    Args:
        module: its qualified name; ``slot``: the tensor's.
        op: the operation that wrote it, or that gives other bits, "" if it is not known; with its line.
        before: operations that lie between what was the same and that one, the last first: it may have been one of them.
        flip: what one element was then and now, and the bit, where that explains the difference; else "".
        bit: its number, counted from the lowest one of the dtype that both have been rounded to; -1: none.
    """

    phase: Phase
    module: str
    slot: str
    cause: Cause
    op: str = ""
    file: str = ""
    line: int = 0
    code: str = ""
    flip: str = ""
    bit: int = -1
    before: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a call that was done again.

    Args:
        undone: why some of it was not done, a sentence's part; "" if all was.
        num_compared: tensors.
    """

    difference: Difference | None
    undone: str = ""
    num_compared: int = 0


class SeenTensor(NamedTuple):
    phase: Phase
    module: str
    slot: str
    ledger: Ledger
    handle: int

    @property
    def key(self) -> tuple[Phase, str, str]:
        return self[:3]

    @property
    def bits(self) -> Bits:
        return _bits(self.ledger, self.handle)


def compare(probe: ModuleProbe, buffers: BufferCopies, journal: Journal, calls: Sequence[Call], gradients: dict[str, Bits]) -> Checked:
    """Do calls again, each with its backward, and find the first tensor of the step that has other bits then.

    Args:
        journal: of the step, read, with ``Groups.ALL``; with fewer, as of a step that was not meant to be checked, less is compared.
        calls: which have had their backward, or can't have one.
        gradients: of parameters, by name, that the step's backward gave; empty: they are not compared.

    *Cost:* each call once more; where something differs, twice more under a dispatch mode.
    """
    again, found = Journal(), dict[str, Tensor]()
    again.ledger.want(journal.ledger.groups)
    undone = ""
    for call in calls:
        again.call = call.index
        once = Once(call, probe, again, found)
        done = do_again(once, buffers, any(call.gradients))
        if done.status not in (FINITE, FORWARD_FINITE):
            return Checked(None, done.status)
        if call.gradients_dropped:
            undone = "the backward, for which more would have to be kept than there is room for"
    again.read()
    now = Ledger(Groups.ALL)
    given = {
        name: SeenTensor(Phase.BACKWARD, name.rpartition(".")[0], f"grad {name.rpartition('.')[2]}", now, now.observe(_in_order(g)))
        for name, g in found.items()
        if name in gradients
    }
    now.read()
    was: Bits | None = None  # where it was not seen by a hook
    same, first = _first(seen_in(journal, calls), seen_in(again, calls), not undone)
    if first is None:
        wrong = [seen for name, seen in given.items() if seen.handle != UNOBSERVED and seen.bits != gradients[name]]
        if not wrong:
            return Checked(None, undone, len(same) + len(given))
        name = next(name for name, seen in given.items() if seen is wrong[0])
        first, was = (None, wrong[0]), gradients[name]
    return Checked(_explained(probe, buffers, calls, *first, was, {seen.bits for seen in same}), undone)


def seen_in(journal: Journal, calls: Sequence[Call]) -> list[SeenTensor]:
    """The tensors of calls, and all gradients, in order."""
    indices = {call.index for call in calls}
    return [
        SeenTensor(event.phase, event.entry.name, slot, ledger, int(handle))
        for event in journal.events
        if event.phase is Phase.BACKWARD or (event.phase is Phase.FORWARD and event.call in indices)
        for slot, ledger, handle in event.items
        if ledger is journal.ledger and (event.phase is Phase.FORWARD or slot.startswith("grad "))
    ]


def _first(
    was: list[SeenTensor], now: list[SeenTensor], with_backward: bool
) -> tuple[list[SeenTensor], tuple[SeenTensor | None, SeenTensor | None] | None]:
    """The tensors that are the same, and the first that differs, as it was and as it is now."""
    of_forward = [[seen for seen in side if seen.phase is Phase.FORWARD] for side in (was, now)]
    for number, (one, other) in enumerate(zip(*of_forward, strict=False)):
        if one.key != other.key or one.bits != other.bits:
            return of_forward[1][:number], (one, other)
    num = min(map(len, of_forward))
    equal = of_forward[1][:num]
    if len(of_forward[0]) != len(of_forward[1]):
        return equal, tuple(side[num] if len(side) > num else None for side in of_forward)  # type: ignore[return-value]
    later = defaultdict[tuple[Phase, str, str], list[SeenTensor]](list)
    for seen in now:
        later[seen.key].append(seen)
    for one in was if with_backward else ():
        if one.phase is Phase.BACKWARD and (others := later[one.key]):  # others are of calls that are not done again
            same = next((other for other in others if other.bits == one.bits), None)
            if same is None:
                return equal, (one, others[0])
            others.remove(same)
            equal.append(same)
    return equal, None


def _explained(
    probe: ModuleProbe,
    buffers: BufferCopies,
    calls: Sequence[Call],
    was: SeenTensor | None,
    now: SeenTensor | None,
    bits: Bits | None,
    same: Collection[Bits],
) -> Difference:
    """Why, and where: the calls are done twice more, operation by operation. ``bits``: as it was; ``same``: what was the same."""
    at = was or now
    assert at is not None
    runs = [[_Taped(call, probe, at.ledger.groups) for call in calls] for _ in range(2)]
    for run in runs:
        for stages in run:
            do_again(stages, buffers, any(stages.call.gradients))
            stages.rows.read()
    for one, other in zip(*runs, strict=True):
        differs = _first_operation(one, other)
        if differs is not None:
            record, cause = differs
            return Difference(record.phase, record.module, "output", cause, record.op, *script_line(record, one.call))
    bits = bits or (None if was is None else was.bits)
    flip = ("", -1) if bits is None or now is None else flipped(bits, now.bits)
    found = next(((record, stages) for stages in runs[0] for record in _writers(stages, now)), None)
    if found is None:
        return Difference(at.phase, at.module, at.slot, Cause.UNKNOWN, flip=flip[0], bit=flip[1])
    record, stages = found
    where = record.op, *script_line(record, stages.call)
    return Difference(at.phase, at.module, at.slot, Cause.UNKNOWN, *where, *flip, tuple(_between(record, stages, same)))


def _between(last: OpRecord, stages: _Taped, same: Collection[Bits]) -> Iterator[str]:
    """The operations from which a result comes, back to results that were the same, the last first."""
    todo, met = [last], {last.index}
    while todo and len(met) <= _MOST_NAMED:
        record = todo.pop(0)
        writers = sorted((w for o in record.inputs if o.state is not None for w in o.state.writers if w in stages.tape), reverse=True)
        for source in (stages.tape[w] for w in writers if w not in met):
            known = any(
                o.state is not None and o.state.row != UNOBSERVED and _bits(stages.rows, o.state.row) in same for o in source.outputs
            )
            if not known and source.phase is last.phase:
                met.add(source.index)
                todo.append(source)
                yield source.op


def flipped(was: Bits, now: Bits) -> tuple[str, int]:
    """The element and the bit, if one alone is another one: then the sums of powers say what it was and is.

    The bit is counted from the lowest of bfloat16, or float16, where both numbers of a wider dtype are that one's: as far as that a cast
    may round otherwise.
    """
    (a, b), dtype = (Summary.from_row(_ROW.unpack(row)) for row, _ in (was, now)), getattr(torch, was[1].removeprefix("torch."))
    of_bits = _AS_BITS.get(dtype)
    change, of_squares = a.sum - b.sum, a.square_sum - b.square_sum
    if of_bits is None or not change or b.num_nonfinite or a.num_nonfinite > 1:
        return "", -1
    if a.num_nonfinite:
        return _overflown(-change, -of_squares, dtype, of_bits)
    x, y = (of_squares / change + change) / 2, (of_squares / change - change) / 2
    both = torch.tensor([x, y], dtype=torch.float64, device="cpu").to(dtype)
    bits = both.view(of_bits).tolist()
    flipped = (bits[0] ^ bits[1]) & ((1 << 8 * dtype.itemsize) - 1)
    bit = flipped.bit_length() - 1
    if flipped.bit_count() != 1:
        return "", -1
    lost = next((n for n in _LOST if dtype is torch.float32 and not (bits[0] | bits[1]) & ((1 << n) - 1)), 0)
    return f"one element was {both[0]:.6g} in the run and is {both[1]:.6g} again: bit {bit}", bit - lost


def _overflown(number: float, square: float, dtype: torch.dtype, of_bits: torch.dtype) -> tuple[str, int]:
    """The bit that makes a finite number an infinity or a nan, if it is one; ``square``: of that number, as a check."""
    finite = torch.tensor([number], dtype=torch.float64, device="cpu").to(dtype)
    for bit in range(8 * dtype.itemsize - 1) if abs(number * number - square) <= 1e-6 * square else ():
        other = (finite.view(of_bits) ^ (1 << bit)).view(dtype)
        if not other.isfinite():
            return f"one element was {other[0]:.6g} in the run and is {finite[0]:.6g} again: bit {bit}", bit
    return "", -1


def _first_operation(one: _Taped, other: _Taped) -> tuple[OpRecord, Cause] | None:
    """The first operation that gives other bits, and why."""

    def differ(a: OperandRecord, b: OperandRecord) -> bool:
        rows = [UNOBSERVED if o.state is None else o.state.row for o in (a, b)]
        return UNOBSERVED not in rows and _bits(one.rows, rows[0]) != _bits(other.rows, rows[1])

    for record, twin in zip(one.tape.records, other.tape.records, strict=False):
        if record.op != twin.op or [o.value for o in record.inputs] != [o.value for o in twin.inputs]:
            return record, Cause.STATE
        for operand in (a for a, b in zip(record.inputs, twin.inputs, strict=False) if differ(a, b)):
            writers = [one.tape[w] for w in operand.state.writers if w in one.tape] if operand.state is not None else []
            is_blank = any(writer.name in UNINITIALIZED for writer in writers)
            return record, Cause.UNINITIALIZED if is_blank else Cause.STATE
        if any(differ(a, b) for a, b in zip(record.outputs, twin.outputs, strict=False)):
            return record, _cause(record)
    return None


def _cause(record: OpRecord) -> Cause:
    """Why an operation gives other bits from the same operands."""
    packet = getattr(torch.ops.aten, record.op.rpartition(".")[2], None)
    overloads = [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
    if any(torch.Tag.nondeterministic_seeded in overload.tags for overload in overloads):
        return Cause.RANDOM
    is_made = record.name in ("lift_fresh", "scalar_tensor") or not any(o.state is not None for o in record.inputs)
    return Cause.STATE if is_made else Cause.NONDETERMINISTIC  # else it is made of numbers that Python had


def _writers(stages: _Taped, seen: SeenTensor | None) -> Iterator[OpRecord]:
    """The operations that gave a tensor of these bits."""
    if seen is not None and seen.handle != UNOBSERVED:
        found = (record for bits, record in writers(stages.tape, stages.rows) if bits == seen.bits)
        yield from (record for record in found if (record.phase is Phase.FORWARD) == (seen.phase is Phase.FORWARD))


def writers(tape: OpTape, rows: Ledger) -> Iterator[tuple[Bits, OpRecord]]:
    """Each result on a tape, with the operation that gave it, in order."""
    for record in tape.records:
        yield from ((_bits(rows, o.state.row), record) for o in record.outputs if o.state is not None and o.state.row != UNOBSERVED)


def _bits(ledger: Ledger, handle: int) -> Bits:
    return _ROW.pack(*ledger.row(handle)), str(ledger.place(handle)[2])


def bits_of(tensors: Mapping[_Key, Tensor]) -> dict[_Key, Bits]:
    """Of tensors as they are now. *Cost:* a pass over each."""
    ledger = Ledger(Groups.ALL)
    handles = {name: ledger.observe(_in_order(tensor)) for name, tensor in tensors.items()}
    ledger.read()
    return {name: _bits(ledger, handle) for name, handle in handles.items() if handle != UNOBSERVED}


class Incoming:
    """The gradients that a backward gives parameters, before ranks average them: their bits, summed up as they come.

    *Cost:* a hook and a pass over each.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._ledger, self._handles = Ledger(Groups.ALL), defaultdict[str, list[int]](list)
        self._hooks: list[Any] = [
            p.register_hook(partial(self._came, name))  # type: ignore[no-untyped-call]
            for name, p in parameters.items()
            if p.requires_grad and not hasattr(p, "placements")  # a DTensor's: a model that communicates is not done again
        ]

    def _came(self, name: str, gradient: Tensor) -> None:
        try:
            with unseen():
                self._handles[name].append(self._ledger.observe(_in_order(gradient)))
        except ours():
            self._handles[name].append(UNOBSERVED)

    def end(self) -> dict[str, Bits]:
        """Of the parameters that one gradient has come to; none comes any more."""
        for hook in self._hooks:
            hook.remove()
        self._ledger.read()
        return {name: _bits(self._ledger, one) for name, (one, *more) in self._handles.items() if not more and one != UNOBSERVED}


def _in_order(tensor: Tensor) -> Tensor:
    """Its elements lie in the order of their indices: a parameter's gradient has its strides, what a backward returned may have others, and
    sums depend on the order.
    """
    with unseen():
        return tensor.contiguous() if tensor.layout is torch.strided else tensor


class Once(Stages):
    """A call's forward and backward once more, as they were; modules tell a journal of it."""

    seeks = False

    def __init__(self, call: Call, probe: ModuleProbe, journal: Journal, gradients: dict[str, Tensor]) -> None:
        super().__init__(call, probe.names, has_group(), None)
        self._probe, self._listener, self._gradients = probe, _IntoJournal(journal), gradients

    @contextlib.contextmanager
    def _probed(self, phase: Phase) -> Iterator[None]:
        with heard(), self._probe.retelling(self._listener):
            yield

    def _gave(self, gradients: Sequence[Tensor | None]) -> None:
        for (name, _), gradient in zip(self.parameters, gradients, strict=True):
            if gradient is not None:
                before = self._gradients.get(name)
                self._gradients[name] = gradient if before is None else before + gradient


class _Taped(Stages):
    """The same, operation by operation."""

    seeks = False

    def __init__(self, call: Call, probe: ModuleProbe, groups: Groups) -> None:
        super().__init__(call, probe.names, has_group(), None)
        self.rows = Ledger(groups)


class _IntoJournal:
    """Writes a replay into a journal. Gradients are told by one object, so that those that a forward has hooked are in its backward."""

    def __init__(self, journal: Journal) -> None:
        self.tap, self.gradient = journal.tap, journal.add_gradient

    def enter(self, *_: object) -> None: ...

    def leave(self, *_: object) -> None: ...

    def failed(self, error: Exception) -> None:
        raise error
