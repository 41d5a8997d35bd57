"""From what escaped to a culprit: the operation at fault, its line, the reason, and what to do about it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from numscope.records.finding import Culprit, Operand
from numscope.records.places import file_of, is_installed, place
from numscope.records.site import Phase
from numscope.replay.origin import FaultOrigin, Origins, concerns, first, source_of
from numscope.replay.reasons.case import FLOAT32_RANGE, Case, Root, Rounded
from numscope.replay.reasons.explain import explain
from numscope.replay.tape import UNOBSERVED, NumberStore, OperandRecord, OpRecord, OpTape, State

if TYPE_CHECKING:
    from torch import Tensor, nn

_FSDP = os.path.join("torch", "distributed", "fsdp", "")


def find_culprit(
    tape: OpTape, escaped: Sequence[Tensor | State], rows: NumberStore, saved: Sequence[Tensor | State] = ()
) -> Culprit | None:
    """Name the operation where finite inputs first gave a non-finite output that reached what escaped.

    Args:
        tape: of a forward, or of a forward and its backward.
        escaped: outputs, gradients, a loss, parameters, or states of such: whatever must not be non-finite. Finite ones are skipped.
        rows: the ledger that the probe wrote to, already read.
        saved: tensors that are kept for later, in which an infinity that was written on purpose is no fault.

    Returns: the culprit; None when nothing that escaped was made bad on this tape.
    *Cost:* one walk over the records in plain Python; no tensor is touched.
    """
    return find(tape, escaped, rows, saved)[0]


def find(
    tape: OpTape, escaped: Sequence[Tensor | State], rows: NumberStore, saved: Sequence[Tensor | State] = ()
) -> tuple[Culprit | None, OpRecord | None]:
    """``find_culprit``, and the record whose frames are the culprit's: for an operation of backward, that of its forward operation."""
    if not escaped and not saved:
        return None, None
    origins = Origins(tape, rows)
    found = _origins_of(origins, escaped)
    found += [origin for origin in _origins_of(origins, saved) if not origin.deliberate]
    if not found:
        return None, None
    writer, origin = _Writer(origins), min(found, key=first)
    return writer.culprit(origin), writer.asker(writer.user_of(origin))


def _origins_of(origins: Origins, tensors: Sequence[Tensor | State]) -> list[FaultOrigin]:
    states = [t if isinstance(t, State) else origins.tape.state_of(t) for t in tensors]
    suspects = [s for s in states if s is not None and (s.row == UNOBSERVED or origins.bad(s))]
    return [origin for s in suspects if (origin := origins.of(s)) is not None]


def pending_states(tape: OpTape, rows: NumberStore, most: int = 1) -> list[State]:
    """Of the last operations that read or made a nan, or a single infinite number, as ``isfinite(loss)`` does; the last one first.

    Tensors that only hold infinities are left out: they are how masks are written.
    """
    found: dict[int, State] = {}
    bad = set(rows.bad())
    for record in reversed(tape.records):
        for operand in (*record.outputs, *record.inputs):
            if operand.state is None or operand.state.row not in bad or operand.state.row in found:
                continue
            numbers = rows.numbers(operand.state.row)
            if numbers.num_nan or (numbers.num_nonfinite and numbers.numel == 1):
                found[operand.state.row] = operand.state
                if len(found) == most:
                    return [*found.values()]
    return [*found.values()]


def at_own_line(culprit: Culprit, names: Mapping[nn.Module, str]) -> Culprit:
    """A culprit that a library ran for a module of the user's own, such as a solver's arithmetic, at that module's line."""
    module = next((m for m, name in names.items() if name == culprit.module), None)
    own = [at for at, entry in enumerate(culprit.stack) if not is_installed(entry[0])]
    if module is None or not own or not is_installed(culprit.file) or is_installed(file_of(type(module))):
        return culprit
    file, line, _, code = culprit.stack[own[-1]]
    detail = f"{culprit.detail} It ran in {place(culprit.file, culprit.line)} `{culprit.code}`."
    return replace(culprit, file=file, line=line, code=code, detail=detail, stack=culprit.stack[: own[-1] + 1])


class _Writer:
    """Writes the culprit of an origin."""

    def __init__(self, origins: Origins) -> None:
        self.origins, self.tape = origins, origins.tape
        self._redone: set[int] = set()  # records that depend on what was written since they ran for the first time
        for record in self.tape.records if self.tape.rewritten is not None else ():
            if any(map(self._is_redone, record.inputs)):
                self._redone.add(record.index)

    def _is_redone(self, operand: OperandRecord) -> bool:
        """Whether an operand is not known to be what the operation saw when it ran for the first time."""
        state, rewritten = operand.state, self.tape.rewritten
        return state is not None and rewritten is not None and (state.name in rewritten.names or not self._redone.isdisjoint(state.writers))

    def culprit(self, origin: FaultOrigin) -> Culprit:
        record = self.user_of(origin)
        if record.told is not None:
            return record.told
        out = origin.output
        inputs = [o for o in record.inputs if out is None or o.state is None or concerns(o, out)]
        case = replace(
            self._case(record, inputs, out),
            forward=self._source(record),
            accumulates=self._accumulates(record),
            deliberate=origin.deliberate,
            root=_root(origin.root, self.origins, record.phase),
            uninitialized=out is not None and out.state is not None and self.origins.numbers(out.state) is None,
            contained=origin.contained,
        )
        reason, detail, advice = explain(self._held(case, record))
        stack = self._stack(record)
        file, line, _, code = stack[-1] if stack else ("", 0, "", "")
        if origin.written >= 0 and (lines := self._stack(self.tape[origin.written])) and lines[-1][:2] != (file, line):
            detail += f" The infinity was written at {lines[-1][0]}:{lines[-1][1]} `{lines[-1][3]}`."
        pairs = zip(case.inputs, inputs, strict=True)
        shown = tuple(replace(o, numbers=None, value=_type_of(r)) if self._is_redone(r) else o for o, r in pairs)
        if shown != case.inputs and self.tape.rewritten is not None:
            detail += f" {self.tape.rewritten.said}"
        return Culprit(
            op=record.op,
            phase=record.phase,
            module=record.module,
            file=file,
            line=line,
            code=code,
            reason=reason,
            detail=detail,
            advice=advice,
            inputs=shown,
            outputs=case.outputs,
            stack=stack,
        )

    def _source(self, record: OpRecord) -> Case | None:
        """The case of the operation whose gradient a record computes."""
        source = record.forward
        return None if source is None else replace(self._case(source, source.inputs), forward=self._source(source))

    def _case(self, record: OpRecord, inputs: Sequence[OperandRecord], out: OperandRecord | None = None) -> Case:
        result = out if out is not None or not record.outputs else record.outputs[0]
        return Case(
            op=record.name,
            phase=record.phase,
            module=record.module,
            inputs=tuple(self._operand(o) for o in inputs),
            values={o.name: _value(o, out) for o in inputs if o.state is None},
            output=self.origins.numbers(result.state) if result is not None else None,
            outputs=tuple(self._operand(o) for o in record.outputs),
            ignored=tuple(self._operand(o) for o in inputs if o.ignored),
            bears=record.bears,
            rounded=self._rounded(record, inputs),
        )

    def _held(self, case: Case, record: OpRecord) -> Case:
        """Where a result that is too large for its dtype goes: sums, products and casts hand it on; norms and matrices don't."""
        case = replace(case, holder=record.module, last=record.module)
        if record.phase is not Phase.FORWARD or not record.module or case.limit >= FLOAT32_RANGE:
            return case
        carried, read, modules = {record.index}, set[int](), [record.module]
        for later in self.tape.records:
            if later.phase is not Phase.FORWARD or later.index <= record.index:
                continue
            given = {index for o in later.inputs if o.state is not None for index in carried.intersection(o.state.writers)}
            if not given:
                continue
            read |= given
            modules.append(later.module)
            if later.name in _HANDS_ON and any(self._too_large(out, case.limit) for out in later.outputs):
                carried.add(later.index)
        holder = record.module
        while holder and (holder in self.tape.uncalled or not all(f"{name}.".startswith(f"{holder}.") for name in modules)):
            holder = holder.rpartition(".")[0]
        return replace(case, holder=holder, last=modules[-1], leaves=not carried <= read)

    def _too_large(self, operand: OperandRecord, limit: float) -> bool:
        numbers = self.origins.numbers(operand.state)
        if numbers is None or operand.dtype is None or torch.finfo(operand.dtype).max > limit:
            return False
        return numbers.num_nonfinite > 0 or (numbers.abs_max or 0.0) > limit / 4

    def user_of(self, origin: FaultOrigin) -> OpRecord:
        """The operation to name. FSDP gathers a bad weight before the module that owns it can use it: that use is named."""
        record = self.tape[origin.index]
        if origin.root is None or origin.root.state is None or not _in_fsdp(record):
            return record
        owner = origin.root.state.name.rpartition(".")[0]

        def uses(later: OpRecord) -> bool:
            return later.module == owner and not _in_fsdp(later) and any(o.parameter and self.origins.bad(o.state) for o in later.inputs)

        return next((r for r in self.tape.records if r.index > record.index and uses(r)), record)

    def _accumulates(self, record: OpRecord) -> str:
        """The tensor whose gradient a sum of several gradients is; "" for any other operation."""
        if record.accumulates:
            return record.accumulates
        if record.phase != Phase.BACKWARD or record.op not in ("aten.add", "aten.add_") or record.stack.frames:
            return ""
        nodes = {self.tape[o.producer].node_seq for o in record.inputs if o.producer is not None and o.producer in self.tape}
        return "a tensor that is used more than once" if len(nodes) > 1 else ""

    def _stack(self, record: OpRecord) -> tuple[tuple[str, int, str, str], ...]:
        asker = self.asker(record)
        return () if asker is None else asker.stack.resolve()

    def asker(self, record: OpRecord) -> OpRecord | None:
        """The operation that the user's code ran, and that led to this one."""
        source: OpRecord | None = record
        while source is not None:  # a gradient of a gradient has more than one step to go
            if source.stack.frames:
                return source
            source = source.forward
        if record.accumulates:  # no forward operation of its own: the line that used the parameter
            for user in self.tape.records:
                if user.stack.frames and any(o.state is not None and o.state.name == record.accumulates for o in user.inputs):
                    return user
        return record if record.phase == Phase.OPTIMIZER else None

    def _operand(self, operand: OperandRecord) -> Operand:
        name = operand.name
        if operand.state is None:
            return Operand(name, None, repr(operand.value))
        if operand.state.name and operand.state.name != name:
            name = f"{name} ({operand.state.name})"
        numbers = self.origins.numbers(operand.state)
        if numbers is not None:
            return Operand(name, replace(numbers, shape=operand.shape) if math.prod(operand.shape) == numbers.numel else numbers)
        return Operand(name, None, _type_of(operand))

    def _rounded(self, record: OpRecord, inputs: Sequence[OperandRecord]) -> Rounded | None:
        """A small number that was added to what is 0 among some operands, and that is 0 itself in their dtype."""
        if record.name.startswith("_fused_"):  # a whole optimizer step in one operation
            eps = next((o.value for o in inputs if o.name == "eps"), None)
            return next((r for o in inputs if (r := _rounded_to_zero(eps, o.dtype)) is not None), None)
        todo = list(inputs)
        for _ in range(_STEPS_BACK):
            earlier: list[OperandRecord] = []
            for operand in todo:
                numbers, at = self.origins.numbers(operand.state), operand.producer
                if numbers is None or not numbers.num_zero or at is None or at not in self.tape:
                    continue
                writer = self.tape[at]
                if writer.name in _ADDS:
                    for other in writer.inputs:
                        found = _rounded_to_zero(_value(other, operand), operand.dtype) if other.name != "alpha" else None
                        if found is not None:
                            return found
                elif writer.name in _KEEP_ZEROS:
                    earlier += [o for o in writer.inputs if concerns(o, operand)]
            todo = earlier
        return None


_HANDS_ON = frozenset(
    {"add", "sub", "rsub", "mul", "div", "neg", "abs", "cat", "stack", "copy", "clone", "_to_copy", "index_select", "gather", "index",
     "roll", "relu", "gelu", "silu", "leaky_relu", "native_dropout", "where", "masked_fill", "clamp", "clamp_min", "clamp_max",
     "nan_to_num", "maximum", "minimum", "max_pool2d_with_indices", "upsample_nearest2d", "constant_pad_nd"}
)  # fmt: skip  # what is too large for a dtype stays so
_STEPS_BACK = 6
_ADDS = frozenset({"add", "clamp", "clamp_min"})
_KEEP_ZEROS = frozenset({"sqrt", "div", "maximum", "amax", "cat", "copy", "clone"})  # what is 0 in their results was 0 before


def _type_of(operand: OperandRecord) -> str:
    return f"{str(operand.dtype).removeprefix('torch.')}{list(operand.shape)}"


def _root(operand: OperandRecord | None, origins: Origins, phase: Phase) -> Root | None:
    if operand is None or operand.state is None:
        return None
    return Root(operand.state.name or operand.name, origins.numbers(operand.state), source_of(operand, phase))


def _in_fsdp(record: OpRecord) -> bool:
    """Whether torch's own gathering of sharded parameters runs the operation."""
    inner = record.stack.inner
    return record.op.startswith("fsdp.") or (inner is not None and _FSDP in inner[0].co_filename)


def _rounded_to_zero(value: Any, dtype: torch.dtype | None) -> Rounded | None:
    if not isinstance(value, float) or value <= 0 or dtype is None or not dtype.is_floating_point:
        return None
    return None if torch.tensor(value, dtype=dtype, device="cpu") else Rounded(value, dtype)


def _value(operand: OperandRecord, out: OperandRecord | None) -> Any:
    """A plain argument; in an operation over lists, the number at the result's place."""
    value = operand.value
    if out is not None and out.position >= 0 and isinstance(value, list | tuple) and out.position < len(value):
        return value[out.position]
    return value
