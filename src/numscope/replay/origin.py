"""Where each non-finite value on a tape began.

The tape is walked forward once. Each non-finite result gets one origin: the operation at fault, a tensor that was bad before the tape
began, or an infinity that was written on purpose, as masks are. An infinity written on purpose is harmless until a nan comes of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from numscope.records.finding import Numbers
from numscope.records.site import Phase
from numscope.replay.op import COLLECTIVES, UNINITIALIZED, nonfinite_number
from numscope.replay.outside import GRADIENT, MODEL_OUTPUT
from numscope.replay.reasons.case import LIFTS, SOFTMAX, Source, zeros_and_ones
from numscope.replay.tape import UNOBSERVED, NumberStore, OperandRecord, OpRecord, OpTape, State

_FILLS = frozenset(
    {"full", "full_like", "new_full", "fill", "masked_fill", "scalar_tensor", "constant_pad_nd", "index_fill", "where"}
)  # fmt: skip

# An inf from these comes of an inf of the same sign, or was born there: exp(-inf) is 0, so exp's inf never stems from a mask.
_SIGN_KEEPING = _FILLS | {*LIFTS, "_to_copy", "add", "amax", "amin", "cat", "clamp", "clone", "copy", "exp", "exp2", "expm1", "gather",
                                   "index", "index_put", "logaddexp", "logsumexp", "max", "maximum", "mean", "min", "minimum", "relu",
                                   "softplus", "stack", "sum"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FaultOrigin:
    """Where a non-finite value began.

    Args:
        index: the operation at fault; for a tensor that was bad before, the first operation that read it.
        output: the bad result of that operation; None with ``root``.
        root: the operand that was bad before the tape began.
        deliberate: an infinity written on purpose.
        contained: a forward value that the loss never saw, and that a finite gradient met in the backward.
        written: the operation that wrote the infinity which this one turned into a nan; -1 for none.
    """

    index: int
    output: OperandRecord | None = None
    root: OperandRecord | None = None
    deliberate: bool = False
    contained: bool = False
    written: int = -1


class Origins:
    """The origins of all non-finite results on a tape.

    Args:
        rows: the ledger that the probe wrote to, already read.

    *Cost:* one walk over the records in plain Python; no tensor is read.
    """

    def __init__(self, tape: OpTape, rows: NumberStore) -> None:
        self.tape, self.rows = tape, rows
        self._numbers: dict[int, Numbers] = {}
        self._known: dict[int, list[tuple[OperandRecord, FaultOrigin]]] = {}  # by record: of each of its bad results
        for record in (*tape.kept.values(), *tape.records):
            found = [(out, self._origin(record, out)) for out in (*record.outputs, *record.parts) if self.bad(out.state)]
            if found:
                self._known[record.index] = found

    def numbers(self, state: State | None) -> Numbers | None:
        """A state's numbers; None where it has none."""
        if state is None or state.row == UNOBSERVED:
            return None if state is None else state.numbers
        known = self._numbers.get(state.row)
        if known is None:
            known = self._numbers[state.row] = self.rows.numbers(state.row)
        return known

    def bad(self, state: State | None) -> bool:
        numbers = self.numbers(state)
        return numbers is not None and numbers.num_nonfinite > 0

    def of(self, state: State) -> FaultOrigin | None:
        """The origin of a bad state among the records that wrote it; None when no record made it bad."""
        wants_nan = self._nan(state)
        found: list[tuple[bool, FaultOrigin]] = []
        for index in state.writers:
            made = self._known.get(index, ())
            exact = [o for out, o in made if out.state is state]
            if exact:
                return exact[0]
            found += [(self._nan(out.state), o) for out, o in made]
        if self.numbers(state) is None:  # nothing has read it whole: a mask written into a part of it explains no other part
            return min((o for _, o in found), key=first, default=None)
        same = [o for is_nan, o in found if is_nan == wants_nan] or [o for _, o in found]
        return min(same, key=first, default=None) or self._of_unread(state)

    def _of_unread(self, state: State) -> FaultOrigin | None:
        """The origin of a bad state of memory that was left uninitialized, or that a collective wrote: only what reads it tells."""
        for index in state.writers if self.bad(state) else ():
            record = self.tape[index] if index in self.tape else None
            if record is not None and record.name in UNINITIALIZED:
                return FaultOrigin(index, output=record.outputs[0])
            if record is not None and record.op.partition(".")[0] in COLLECTIVES:
                return self._origin(record, replace(record.outputs[0], state=state))
        return None

    def _nan(self, state: State | None) -> bool:
        numbers = self.numbers(state)
        return numbers is not None and numbers.num_nan > 0

    def _of_operand(self, record: OpRecord, operand: OperandRecord) -> FaultOrigin:
        state = operand.state
        assert state is not None
        origin = self.of(state)
        if origin is not None:
            return origin
        numbers = self.numbers(state)
        assert numbers is not None
        only_minus_inf = numbers.num_nan == 0 and numbers.num_pos_inf == 0
        may_mask = not operand.parameter and source_of(operand, record.phase) not in (Source.GRADIENT, Source.GRAD)
        return FaultOrigin(record.index, root=operand, deliberate=may_mask and only_minus_inf)

    def _origin(self, record: OpRecord, out: OperandRecord) -> FaultOrigin:
        here = FaultOrigin(record.index, output=out)
        if record.name in LIFTS:
            return replace(here, deliberate=self._like_mask(out.state) or out.shape == ())
        found = [(o, self._of_operand(record, o)) for o in record.inputs if self.bad(o.state) and not o.ignored and concerns(o, out)]
        if self._nan(out.state):
            nans = [(o, origin) for o, origin in found if self._nan(o.state)]
            if not nans and all(origin.deliberate for _, origin in found):
                return self._nan_of_infinities(record, here, found)
            if not nans and record.phase == Phase.BACKWARD:
                return self._nan_in_backward(record, here, found)
            found = nans or found
        else:
            if record.name in _SIGN_KEEPING:
                found = [(o, origin) for o, origin in found if self._same_sign(o.state, out.state)]
            if not found:
                return replace(here, deliberate=self._on_purpose(record))
        if record.phase == Phase.BACKWARD:
            found = [(o, self._met_in_backward(found, origin)) for o, origin in found]
        candidates = [origin for _, origin in found] + [here] * record.bears
        return min(candidates, key=first)

    def _nan_of_infinities(self, record: OpRecord, here: FaultOrigin, found: list[tuple[OperandRecord, FaultOrigin]]) -> FaultOrigin:
        """A nan was born of infinities written on purpose, or of none. One that came in with the data is at fault itself."""
        for _, origin in found:
            if origin.root is not None and record.name not in SOFTMAX and not self._like_mask(origin.root.state):
                return replace(origin, deliberate=False)
        written = min((origin.index for _, origin in found if origin.root is None), default=-1)
        return replace(here, deliberate=record.name in _FILLS and self._on_purpose(record), written=written)

    def _on_purpose(self, record: OpRecord) -> bool:
        """Whether an operation writes a non-finite constant, as masks are made: by filling, or by ``(1 - keep) * -inf``."""
        if record.phase == Phase.OPTIMIZER or not any(o.state is None and nonfinite_number(o.value) for o in record.inputs):
            return False
        tensors = [n for o in record.inputs if (n := self.numbers(o.state)) is not None]
        return record.name in _FILLS or all(map(zeros_and_ones, tensors))

    def _like_mask(self, state: State | None) -> bool:
        """Whether a tensor holds nothing but 0 and -inf."""
        numbers = self.numbers(state)
        return numbers is not None and not numbers.num_nan and not numbers.num_pos_inf and not numbers.abs_max

    def _same_sign(self, source: State | None, result: State | None) -> bool:
        a, b = self.numbers(source), self.numbers(result)
        return a is None or b is None or bool((a.num_pos_inf and b.num_pos_inf) or (a.num_neg_inf and b.num_neg_inf))

    # ---- backward

    def _from_backward(self, operand: OperandRecord) -> bool:
        index = operand.producer
        return index is not None and index in self.tape and self.tape[index].phase == Phase.BACKWARD

    def _met_in_backward(self, found: list[tuple[OperandRecord, FaultOrigin]], origin: FaultOrigin) -> FaultOrigin:
        """Mark an origin that lies in the forward and is first met here, by a gradient that was finite."""
        if any(self._from_backward(o) for o, _ in found) or origin.root is not None:
            return origin
        return replace(origin, contained=True)

    def _nan_in_backward(self, record: OpRecord, here: FaultOrigin, found: list[tuple[OperandRecord, FaultOrigin]]) -> FaultOrigin:
        """A nan born in the backward from an infinity. If this gradient's own forward made that, 0 * inf is the fault."""
        origin = min((o for _, o in found), key=first)
        if any(self._from_backward(o) for o, _ in found):
            return origin
        if record.forward is not None and self._same_place(self.tape[origin.index], record.forward):
            return here
        return self._met_in_backward(found, origin)

    @staticmethod
    def _same_place(a: OpRecord, b: OpRecord) -> bool:
        """Whether two records are one operation: checkpointing runs it twice, and the gradient meets what the second run made."""
        return a is b or (a.op == b.op and a.stack.recompute and a.stack.frames[:1] == b.stack.frames[:1])


def first(origin: FaultOrigin) -> tuple[bool, bool, int]:
    """The order of origins: faults before what was written on purpose, what a model handed on before what was made of it, in order."""
    state = None if origin.root is None else origin.root.state
    return origin.deliberate, state is None or not state.name.startswith(MODEL_OUTPUT), origin.index


def concerns(operand: OperandRecord, out: OperandRecord) -> bool:
    """Whether an operand bears on a result: in an operation over lists, only the one at the same place."""
    return operand.position < 0 or out.position < 0 or operand.position == out.position


def source_of(operand: OperandRecord, phase: Phase) -> Source:
    """A description of an operand that came from outside the tape."""
    name = operand.state.name if operand.state is not None else ""
    if operand.parameter or not name:
        return Source.STATE if operand.parameter else Source.LOSS if phase in (Phase.LOSS, Phase.SCRIPT) else Source.OUTSIDE
    return next((source for prefix, source in _PREFIXES.items() if name.startswith(prefix)), Source.STATE)


_PREFIXES = {"grad ": Source.GRADIENT, GRADIENT: Source.GRAD, "input[": Source.ARGUMENT, MODEL_OUTPUT: Source.OUTPUT}
