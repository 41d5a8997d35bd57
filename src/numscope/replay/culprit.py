"""From what escaped back to the operation where it began.

The tape is walked forward once. Each non-finite result gets one origin: the operation at fault, a tensor that was bad before, or an
infinity that was written on purpose (a mask). Results that never reach what escaped are never asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numscope.records.finding import Culprit, Numbers, Operand
from numscope.records.site import Phase
from numscope.replay.op import UNINITIALIZED, UNOBSERVED, OperandRecord, OpRecord, OpTape, Rows, State, nonfinite_number
from numscope.replay.reasons.gradients import MASKED, Case, explain

if TYPE_CHECKING:
    from torch import Tensor

_ENTRIES = ("input", "args", "kwargs", "target", "batch")  # how the names of what the user passes in begin


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a non-finite value began.

    Args:
        index: the operation at fault; for a tensor bad before, the first operation that read it.
        output: which of its results, or None with ``root``.
        root: the operand that was bad before the tape began.
        deliberate: an infinity written on purpose; harmless as long as no nan comes of it.
        contained_until: a backward operation that met this forward value, which the loss had never seen; -1 for none.
        written: the operation that wrote the infinity which this one made a nan of; -1 for none.
    """

    index: int
    output: OperandRecord | None = None
    root: OperandRecord | None = None
    deliberate: bool = False
    contained_until: int = -1
    written: int = -1


def find_culprit(tape: OpTape, escaped: Sequence[Tensor | State], rows: Rows) -> Culprit | None:
    """Name the operation where finite inputs first gave a non-finite output that reached what escaped.

    Args:
        tape: of a forward, or of a forward and its backward.
        escaped: outputs, gradients, a loss, parameters, or states of such: whatever must not be non-finite. Finite ones are skipped.
        rows: the ledger that the probe wrote to, already read.

    Returns: the culprit; None when nothing that escaped was made bad on this tape.
    *Cost:* one walk over the records in plain Python; no tensor is touched.
    """
    trace = _Trace(tape, rows)
    origins: list[Origin] = []
    for tensor in escaped:
        state = tensor if isinstance(tensor, State) else tape.state_of(tensor)
        if state is None or (state.row != UNOBSERVED and not trace.bad(state)):
            continue
        origin = trace.written(state)
        if origin is not None:
            origins.append(origin)
    if not origins:
        return None
    faults = [o for o in origins if not o.deliberate]
    return trace.culprit(min(faults or origins, key=lambda o: o.index))


class _Trace:
    def __init__(self, tape: OpTape, rows: Rows) -> None:
        self.tape, self.rows = tape, rows
        self._numbers: dict[int, Numbers] = {}
        self._origins: dict[int, list[tuple[OperandRecord, Origin]]] = {}  # by record: of each of its bad results
        for record in tape.records:
            found = [(out, self._origin(record, out)) for out in record.outputs if out.state is not None and self.bad(out.state)]
            if found:
                self._origins[record.index] = found

    def numbers(self, state: State | None) -> Numbers | None:
        if state is None or state.row == UNOBSERVED:
            return None
        known = self._numbers.get(state.row)
        if known is None:
            known = self._numbers[state.row] = self.rows.numbers(state.row)
        return known

    def bad(self, state: State | None) -> bool:
        numbers = self.numbers(state)
        return numbers is not None and numbers.num_nonfinite > 0

    def nan(self, state: State | None) -> bool:
        numbers = self.numbers(state)
        return numbers is not None and numbers.num_nan > 0

    def written(self, state: State) -> Origin | None:
        """The origin of a bad state among the records that wrote it; None when no record made it bad."""
        wants_nan = self.nan(state)
        found: list[tuple[bool, Origin]] = []
        for index in state.writers:
            made = self._origins.get(index, ())
            exact = [o for out, o in made if out.state is state]
            if exact:
                return exact[0]
            found += [(self.nan(out.state), o) for out, o in made]
        same = [o for is_nan, o in found if is_nan == wants_nan] or [o for _, o in found]
        return min(same, key=lambda o: (o.deliberate, o.index), default=None)

    def _of_operand(self, record: OpRecord, operand: OperandRecord) -> Origin:
        state = operand.state
        assert state is not None
        origin = self.written(state)
        if origin is not None:
            return origin
        blank = [i for i in state.writers if i in self.tape and self.tape[i].name in UNINITIALIZED]
        if blank:
            return Origin(blank[0], output=self.tape[blank[0]].outputs[0])
        numbers = self.numbers(state)
        assert numbers is not None
        # -inf only: an attention mask that was passed in
        mask = not operand.parameter and numbers.num_nan == 0 and numbers.num_pos_inf == 0
        return Origin(record.index, root=operand, deliberate=mask)

    def _origin(self, record: OpRecord, out: OperandRecord) -> Origin:
        here = Origin(record.index, output=out)
        inputs = [o for o in record.inputs if self.bad(o.state) and _concerns(o, out)]
        on_purpose = record.phase != Phase.OPTIMIZER and any(o.state is None and nonfinite_number(o.value) for o in record.inputs)
        if record.name in ("lift_fresh", "lift"):
            return replace(here, deliberate=True)
        found = [(o, self._of_operand(record, o)) for o in inputs]
        if self.nan(out.state):
            nans = [(o, origin) for o, origin in found if self.nan(o.state)]
            if not nans and (not found or all(origin.deliberate for _, origin in found)):
                data = [origin for _, origin in found if origin.root is not None and _is_input(origin.root)]
                if data and record.name not in MASKED:
                    return replace(data[0], deliberate=False)  # an inf in the data is a mask only where masks are used
                written = min((origin.index for _, origin in found if origin.root is None), default=-1)
                return replace(here, deliberate=on_purpose and record.name in _FILLS, written=written)
            if not nans and record.phase == Phase.BACKWARD:
                return self._contained(record, here, found)
            found = nans or found
        else:
            if record.name in _SIGN_KEEPING:
                found = [(o, origin) for o, origin in found if self._same_sign(o.state, out.state)]
            if not found:
                return replace(here, deliberate=on_purpose)
        if record.phase == Phase.BACKWARD:
            found = [(o, self._crossing(record, found, origin)) for o, origin in found]
        return min((origin for _, origin in found), key=lambda o: (o.deliberate, o.index))

    def _same_sign(self, source: State | None, result: State | None) -> bool:
        a, b = self.numbers(source), self.numbers(result)
        return a is None or b is None or bool((a.num_pos_inf and b.num_pos_inf) or (a.num_neg_inf and b.num_neg_inf))

    def _from_backward(self, operand: OperandRecord) -> bool:
        index = operand.producer
        return index is not None and index in self.tape and self.tape[index].phase == Phase.BACKWARD

    def _crossing(self, record: OpRecord, found: list[tuple[OperandRecord, Origin]], origin: Origin) -> Origin:
        """Mark an origin that lies in the forward and is met only here, by a gradient that was finite."""
        if any(self._from_backward(o) for o, _ in found) or origin.contained_until >= 0 or origin.root is not None:
            return origin
        return replace(origin, contained_until=record.index)

    def _contained(self, record: OpRecord, here: Origin, found: list[tuple[OperandRecord, Origin]]) -> Origin:
        """A nan born in a backward from an inf. Where its own forward made that, 0 * inf is the fault; else the inf's origin is."""
        origin = min((o for _, o in found), key=lambda o: (o.deliberate, o.index))
        if any(self._from_backward(o) for o, _ in found):
            return origin
        if record.forward is not None and self._same_place(self.tape[origin.index], record.forward):
            return here
        return self._crossing(record, found, origin)

    @staticmethod
    def _same_place(a: OpRecord, b: OpRecord) -> bool:
        """Whether two records are one operation: checkpointing runs it twice, and the second has made what the gradient meets."""
        return a is b or (a.op == b.op and a.stack.recompute and a.stack.frames[:1] == b.stack.frames[:1])

    def culprit(self, origin: Origin) -> Culprit:
        record = self.tape[origin.index]
        out = origin.output
        inputs = [o for o in record.inputs if out is None or o.state is None or _concerns(o, out)]
        case = Case(
            op=record.name,
            phase=record.phase,
            module=record.module,
            inputs=tuple(self._operand(o) for o in inputs),
            values={o.name: _value(o, out) for o in inputs if o.state is None},
            output=self.numbers(out.state) if out is not None else None,
            outputs=tuple(self._operand(o) for o in record.outputs),
            forward=self._forward_case(record),
            node=record.node,
            accumulates=self._accumulates(record),
            deliberate=origin.deliberate,
            root=(_root_name(origin.root), self.numbers(origin.root.state), _is_input(origin.root)) if origin.root is not None else None,
            uninitialized=out is not None and out.state is not None and out.state.row == UNOBSERVED,
            contained=origin.contained_until >= 0,
        )
        reason, detail, advice = explain(case)
        stack = self._stack(record)
        file, line, _, code = stack[-1] if stack else ("", 0, "", "")
        if origin.written >= 0 and (lines := self._stack(self.tape[origin.written])) and lines[-1][:2] != (file, line):
            detail += f" The infinity was written at {lines[-1][0]}:{lines[-1][1]} `{lines[-1][3]}`."
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
            inputs=case.inputs,
            outputs=case.outputs,
            stack=stack,
        )

    def _forward_case(self, record: OpRecord) -> Case | None:
        forward = record.forward
        if forward is None:
            return None
        return Case(
            op=forward.name,
            phase=forward.phase,
            module=forward.module,
            inputs=tuple(self._operand(o) for o in forward.inputs),
            values={o.name: o.value for o in forward.inputs if o.state is None},
            output=self.numbers(forward.outputs[0].state) if forward.outputs else None,
            outputs=tuple(self._operand(o) for o in forward.outputs),
        )

    def _accumulates(self, record: OpRecord) -> str:
        """Of a sum that the engine makes of several gradients: of what."""
        if record.accumulates:
            return record.accumulates
        if record.phase != Phase.BACKWARD or record.op not in ("aten.add", "aten.add_") or record.stack.frames:
            return ""
        nodes = {self.tape[o.producer].node_seq for o in record.inputs if o.producer is not None and o.producer in self.tape}
        return "a tensor that is used more than once" if len(nodes) > 1 else ""

    def _stack(self, record: OpRecord) -> tuple[tuple[str, int, str, str], ...]:
        source: OpRecord | None = record
        while source is not None:  # a gradient of a gradient has more than one step to go
            if source.stack.frames:
                return source.stack.resolve()
            source = source.forward
        if record.accumulates:  # no forward operation of its own: the line that used the parameter
            for user in self.tape.records:
                if user.stack.frames and any(o.state is not None and o.state.name == record.accumulates for o in user.inputs):
                    return user.stack.resolve()
        return record.stack.resolve() if record.phase == Phase.OPTIMIZER else ()

    def _operand(self, operand: OperandRecord) -> Operand:
        name = operand.name
        if operand.state is None:
            return Operand(name, None, repr(operand.value))
        if operand.state.name and operand.state.name != name:
            name = f"{name} ({operand.state.name})"
        numbers = self.numbers(operand.state)
        if numbers is not None:
            return Operand(name, replace(numbers, shape=operand.shape) if math.prod(operand.shape) == numbers.numel else numbers)
        return Operand(name, None, f"{str(operand.dtype).removeprefix('torch.')}{list(operand.shape)}")


_FILLS = frozenset(
    {"full", "full_like", "new_full", "fill", "masked_fill", "scalar_tensor", "constant_pad_nd", "index_fill", "lift_fresh", "where"}
)  # fmt: skip

# An inf from these comes of an inf of the same sign, or was born there: exp(-inf) is 0, so exp's inf never stems from a mask.
_SIGN_KEEPING = _FILLS | {"_to_copy", "add", "amax", "amin", "cat", "clamp", "clone", "copy", "exp", "exp2", "expm1", "gather", "index",
                          "index_put", "logaddexp", "logsumexp", "max", "maximum", "mean", "min", "minimum", "relu", "softplus", "stack",
                          "sum"}  # fmt: skip


def _concerns(operand: OperandRecord, out: OperandRecord) -> bool:
    """Whether an operand bears on a result: in an operation over lists, only the one at its place."""
    return operand.position < 0 or out.position < 0 or operand.position == out.position


def _value(operand: OperandRecord, out: OperandRecord | None) -> Any:
    """A plain argument; in an operation over lists, the number at the result's place."""
    value = operand.value
    if out is not None and out.position >= 0 and isinstance(value, list | tuple) and out.position < len(value):
        return value[out.position]
    return value


def _is_input(root: OperandRecord) -> bool:
    name = root.state.name if root.state is not None else ""
    return not root.parameter and (not name or name.startswith(_ENTRIES))


def _root_name(root: OperandRecord) -> str:
    return (root.state.name if root.state is not None else "") or f"{root.name}, a tensor from outside"
