"""Collectives of the script's own: tensors that lose their gradients as ranks gather them, gradients that are summed up twice."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.optim import Optimizer

from numscope.alerts.checks.check import FIRST, Check, line_of
from numscope.distributed.agree import spread
from numscope.probe.calls import in_backward
from numscope.replay import outside
from numscope.replay.tape import UNOBSERVED, OpRecord, OpTape, State
from numscope.summary.ledger import Ledger

TWICE = "gradients reduced twice"
_GATHERS = ("allgather", "_allgather_base", "all_gather_into_tensor")  # without a derivative


class Gathers(Check):
    """Follows the loss back to what an ``all_gather`` wrote of tensors that carry a gradient, this rank's own part among it; and looks
    between a backward and its step for an ``all_reduce`` of what one has made the same on all ranks: the sum is then a multiple.

    *Cost:* on several ranks, at the second and third step, records of the operations outside the model, some 20 µs each.
    """

    name = "gather without gradient"
    also = (TWICE,)

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        if not spread() or not 0 < self.subject.num < FIRST - 1:
            return
        tape = outside.current().tape
        if any(map(_is_gather, tape.records)) and (record := _behind(tape, outside.current().states(roots))) is not None:
            line = line_of(record.stack)
            text = (
                f"What carries a gradient goes through all_gather{line.at()}, which passes none, and the loss is made of the result, this "
            )
            text += "rank's own part too: there it is a constant."
            advice = "Use torch.distributed.nn.functional.all_gather, or put the own part back: gathered[dist.get_rank()] = features."
            self.say(text, advice, line=line, asks=True)

    def before_step(self, optimizer: Optimizer) -> None:
        mine = outside.current()
        if not spread() or not 0 < self.subject.num < FIRST - 1 or in_backward() or not mine.ledger.on_host:
            return
        for record in mine.tape.records:
            if record.name == "allreduce" and (factor := _repeats(mine.tape, record, mine.ledger)):
                line = line_of(record.stack)
                text = f"all_reduce{line.at()} sums up what all_reduce has made the same on all ranks: it becomes {factor} times as large."
                advice = "Sum up each gradient once; a tied weight is found in several modules, model.parameters() has it once."
                self.say(text, advice, rule=TWICE, line=line, asks=True)
                return

    def end(self, closing: bool) -> None:
        if self.subject.num >= FIRST - 1:
            self.spoken.update((self.name, *self.also))


def _is_gather(record: OpRecord) -> bool:
    return record.differentiable and record.op.startswith(("c10d.", "_c10d_functional.")) and record.name in _GATHERS


def _behind(tape: OpTape, states: Sequence[State]) -> OpRecord | None:
    """The gather whose result, this rank's own part among it, some states are made of. What was written in part since is left alone: the
    own part may have been put back.
    """
    todo, seen = [state.writers[0] for state in states if len(state.writers) == 1], set[int]()
    while todo:
        index = todo.pop()
        if index not in seen and index in tape:
            seen.add(index)
            makers = [made for operand in tape[index].inputs if (made := _maker(tape, operand.state)) is not None]
            for made in filter(_is_gather, makers):
                if len(made.outputs) in (1, sum(one is made for one in makers)):  # all parts, as cat or stack puts them together
                    return made
            todo += [made.index for made in makers]
    return None


def _repeats(tape: OpTape, record: OpRecord, ledger: Ledger) -> int:
    """By what an all_reduce multiplies that another one has made; 0: it does something else."""
    before = record.inputs[0].state
    made = _maker(tape, before)
    while made is not None and made.name in ("mul", "div"):
        made = _maker(tape, made.inputs[0].state)
    if made is None or made.name != "allreduce" or before is None or before.row == UNOBSERVED:
        return 0
    read = (operand.state for later in tape.records for operand in later.inputs if operand.state is not None)
    after = next((state for state in read if state.writers == (record.index,) and state.row != UNOBSERVED), None)  # it may end later
    one, other = ledger.numbers(before.row), None if after is None else ledger.numbers(after.row)
    if not one.max or not one.min or other is None or other.max is None or other.min is None:
        return 0
    factor = other.max / one.max
    return int(factor) if factor == int(factor) > 1 and other.min == factor * one.min else 0


def _maker(tape: OpTape, state: State | None) -> OpRecord | None:
    """What has written a state, as a whole."""
    return tape[state.writers[0]] if state is not None and len(state.writers) == 1 and state.writers[0] in tape else None
