"""Takes an optimizer's step in processes of their own before it is taken here, to see whether it comes out the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.detect.again import Bits, Cause, Difference, bits_of, flipped, writers
from numscope.detect.parameters import parameters_of
from numscope.distributed.agree import has_group
from numscope.probe import optimizer as optimizer_probe
from numscope.probe import walk
from numscope.probe.calls import heard, in_backward
from numscope.probe.dynamo import in_compiled
from numscope.probe.optimizers import ids_known, ids_of, states_of
from numscope.records.site import Phase
from numscope.replay import stack as stacks
from numscope.replay.call import eager
from numscope.replay.fork import in_child
from numscope.replay.op import Communicates, OpProbe
from numscope.replay.tape import OpTape
from numscope.summary.ledger import Ledger
from numscope.summary.state import Groups

OF_UPDATE = "the optimizer's step"
_Name = tuple[str, str]  # of a module, and of its parameter or that one's state


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The weights and states that a step leaves behind.

    Args:
        bits: of parameters and their states.
        ops: the operation that wrote each.
        undone: why it is not known, a sentence's part.
    """

    bits: Mapping[_Name, Bits] = field(default_factory=dict)
    ops: Mapping[_Name, str] = field(default_factory=dict)
    undone: str = ""


class UpdateAgain:
    """The steps of one model's optimizers. *Cost:* a step in each of two forked processes, and sums of weights and states in three."""

    def __init__(self, names: Mapping[nn.Module, str]) -> None:
        self._names = names
        self._foreseen: dict[int, tuple[Foreseen, Foreseen]] = {}

    def before(self, optimizer: Optimizer) -> str:
        """Returns: why this one's step is not taken twice, a sentence's part; "" if it is."""
        if optimizer_probe.has_closure() or in_backward():
            return f"{OF_UPDATE}, which runs forward and backward" if optimizer_probe.has_closure() else f"{OF_UPDATE}, within a backward"
        if in_compiled():
            return f"{OF_UPDATE}, which is compiled"
        found = []
        for taped in (True, False):
            work, threads = partial(self._foresee, optimizer, taped), torch.get_num_threads()  # the bits of some sums depend on these
            one = in_child(work, lambda why: Foreseen(undone=f"{OF_UPDATE}: {why}"), num_threads=threads)
            if one is None or one.undone:
                return f"{OF_UPDATE}: no process can be forked for it" if one is None else one.undone
            found.append(one)
        self._foreseen[id(optimizer)] = found[0], found[1]
        return ""

    def after(self, optimizer: Optimizer) -> tuple[Difference | None, int]:
        """The first weight or state that came out otherwise; and how many were compared."""
        one, other = self._foreseen.pop(id(optimizer), (Foreseen(), Foreseen()))
        now = self._bits(optimizer) if one.bits else {}
        for name, bits in now.items():
            expected = one.bits.get(name)
            if expected is not None and not bits == expected == other.bits.get(name):
                cause = Cause.UNKNOWN if expected == other.bits.get(name) else Cause.STATE
                step = f"{type(optimizer).__name__}.step"
                op = f"{step}: {one.ops[name]}" if name in one.ops else step
                frame = stacks.user_frame(sys._getframe())
                line = ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
                return Difference(Phase.OPTIMIZER, *name, cause, op, *line, "", *flipped(bits, expected)), len(now)
        return None, len(now)

    def forget(self, optimizer: Optimizer) -> None:
        """Its step was not taken."""
        self._foreseen.pop(id(optimizer), None)

    def _foresee(self, optimizer: Optimizer, taped: bool) -> Foreseen:
        tape, rows = OpTape(), Ledger(Groups.ALL)
        try:
            with optimizer_probe.paused(), eager(), heard():
                if taped or has_group():
                    with OpProbe(tape, rows, phase=Phase.OPTIMIZER, lone=has_group()):
                        optimizer.step()
                else:
                    optimizer.step()
        except Communicates:
            return Foreseen(undone=f"{OF_UPDATE}, in which ranks communicate")
        rows.read()
        bits, ops = self._bits(optimizer), dict(writers(tape, rows))
        return Foreseen(bits, {name: ops[now].op for name, now in bits.items() if now in ops})

    def _bits(self, optimizer: Optimizer) -> dict[_Name, Bits]:
        return bits_of(dict(self._tensors(optimizer)))

    def _tensors(self, optimizer: Optimizer) -> Iterator[tuple[_Name, Tensor]]:
        own = ids_of(optimizer)
        for module, slot, parameter in parameters_of(self._names):
            if not own.isdisjoint(ids_known(parameter)):
                for key, state in states_of(optimizer, parameter).items():
                    yield from (((module, f"{slot}: {name}"), t.detach()) for name, t in walk.tensors(state, str(key)))
                yield (module, slot), parameter.detach()  # which is made of its states
