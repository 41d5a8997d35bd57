"""Tensors that ranks gather for a loss, and that lose their gradients by it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from numscope.alerts.checks.check import FIRST, Check, ScriptLine
from numscope.distributed.agree import rank, spread
from numscope.replay import outside
from numscope.replay.tape import OpRecord, OpTape, State

_GATHERS = ("allgather", "_allgather_base", "all_gather_into_tensor")  # without a derivative


class Gathers(Check):
    """Follows the loss back to what an ``all_gather`` wrote of tensors that carry a gradient, this rank's own part among it.

    *Cost:* on several ranks, at the second and third step, records of the operations outside the model, some 20 µs each.
    """

    name = "gather without gradient"

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        if not spread() or not 0 < self.subject.num < FIRST - 1:
            return
        tape = outside.current().tape
        if any(map(_is_gather, tape.records)) and (record := _behind(tape, outside.current().states(roots))) is not None:
            frame = record.stack.innermost()
            line = ScriptLine("", 0, "") if frame is None else ScriptLine(frame[0], frame[1], frame[3])
            text = (
                f"What carries a gradient goes through all_gather{line.at()}, which passes none, and the loss is made of the result, this "
            )
            text += "rank's own part too: there it is a constant."
            advice = "Use torch.distributed.nn.functional.all_gather, or put the own part back: gathered[dist.get_rank()] = features."
            self.say(text, advice, line=line, asks=True)

    def end(self, closing: bool) -> None:
        if self.subject.num >= FIRST - 1:
            self.spoken.add(self.name)


def _is_gather(record: OpRecord) -> bool:
    return record.differentiable and record.op.startswith(("c10d.", "_c10d_functional.")) and record.name in _GATHERS


def _behind(tape: OpTape, states: Sequence[State]) -> OpRecord | None:
    """The gather whose result, this rank's own part among it, some states are made of. What was written in part since is left alone: the
    own part may have been put back.
    """
    import torch.distributed as dist  # loads more of it than torch does

    todo, seen = [state.writers[0] for state in states if len(state.writers) == 1], set[int]()
    while todo:
        index = todo.pop()
        if index not in seen and index in tape:
            seen.add(index)
            for operand in tape[index].inputs:
                writers = () if operand.state is None else operand.state.writers
                if len(writers) == 1 and writers[0] in tape and _is_gather(made := tape[writers[0]]):
                    is_list = len(made.outputs) == dist.get_world_size()
                    if len(made.outputs) == 1 or (is_list and operand.position == rank()):
                        return made
                todo += writers if len(writers) == 1 else ()
    return None
