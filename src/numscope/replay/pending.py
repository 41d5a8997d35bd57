"""What a script was looking at when it gave up: a loss on which nobody called backward."""

from __future__ import annotations

from numscope.replay.tape import UNOBSERVED, OpTape, Rows, State


def pending_states(tape: OpTape, rows: Rows) -> list[State]:
    """Of the last operation that read or made a nan, or a single infinite number, as ``isfinite(loss)`` does; none where none did.

    Tensors that only hold infinities are left out: they are how masks are written.
    """
    for record in reversed(tape.records):
        for operand in (*record.outputs, *record.inputs):
            if operand.state is None or operand.state.row == UNOBSERVED:
                continue
            numbers = rows.numbers(operand.state.row)
            if numbers.num_nan or (numbers.num_nonfinite and numbers.numel == 1):
                return [operand.state]
    return []
