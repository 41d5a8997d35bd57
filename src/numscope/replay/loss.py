"""The stretch between the outermost forward's return and ``backward``: the loss, computed outside the model.

It is a few operations that no module hook sees, and its graph is gone once backward has run, so it is watched op by op as it happens. Its
backward is watched by hooks on its few autograd nodes, which go with the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack, _pop_mode, _push_mode

from numscope.records.site import Phase
from numscope.replay.op import ACCUMULATE, OperandRecord, OpProbe, OpRecord, OpTape, Rows, State

MODEL_OUTPUT = "input from the model:"  # how the stretch's operands are called that the model made
MAX_NODES = 512  # of a loss's graph; a stretch longer than that has a model in it


@dataclass(frozen=True, slots=True)
class Root:
    """A tensor that backward was called on, on the tape that saw it made."""

    stretch: LossStretch
    tape: OpTape
    state: State

    @property
    def known(self) -> bool:
        """Whether that tape's step is still at work."""
        return self.stretch.tape is self.tape


class LossStretch:
    """Watches from ``begin`` to ``end``; may be begun again in the same step (micro-batches, several models).

    Args:
        ledger: rows for the operands; read with the step's others.
        failed: is told of an error of the tool's own; a hook on a node must not raise it into the run's backward.

    *Cost:* about 50 µs an operation, plus one pass over each operand not seen before.
    """

    def __init__(self, ledger: Rows, failed: Callable[[Exception], None]) -> None:
        self.ledger = ledger
        self._failed = failed
        self._custom: list[OpProbe] = []  # pushed around a custom function's backward
        self.tape = OpTape(limit=4096)
        self.roots: list[Root] = []  # what backward was called on
        self.backward: list[State] = []  # gradients that came out of the stretch's nodes, in order
        self._mode: OpProbe | None = None
        self._thread = 0  # modes belong to threads
        self._began = 0  # autograd's sequence number
        self._nodes: list[range] = []  # sequence numbers of the nodes that the stretch made

    @property
    def watching(self) -> bool:
        return self._mode is not None

    def begin(self, names: dict[int, str]) -> None:
        """Watch from here on. Not where a dispatch mode of somebody else's is at work: ours must not outlive it in the wrong order."""
        if self._mode is None and not _get_current_dispatch_mode_stack():
            self._mode = OpProbe(self.tape, self.ledger, phase=Phase.LOSS, names=names)
            self._began = torch._C._autograd._get_sequence_nr()
            self._thread = get_ident()
            _push_mode(self._mode)

    def end(self) -> None:
        """Stop watching. From another thread than the one that is watched nothing changes: it may be in the middle of its loss."""
        while self._custom:  # the function's backward raised
            self._pop(self._custom.pop())
        if self._mode is None or self._thread != get_ident():
            return
        mode, self._mode = self._mode, None
        if mode.error is not None:
            self._failed(mode.error)
        self._nodes.append(range(self._began, torch._C._autograd._get_sequence_nr()))
        self._pop(mode)

    @staticmethod
    def _pop(mode: OpProbe) -> None:
        above: list[Any] = []
        stack = _get_current_dispatch_mode_stack()
        if mode not in stack:  # somebody unwound the stack
            return
        while (top := _pop_mode()) is not mode:
            above.append(top)
        for other in reversed(above):
            _push_mode(other)

    def find(self, tensors: Sequence[Tensor]) -> list[Root]:
        """Those of some tensors that this stretch has seen made."""
        return [Root(self, self.tape, state) for t in tensors if (state := self.tape.state_of(t)) is not None]

    def see_backward(self, roots: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Watch the backward of the stretch's own nodes, from what backward is called on down to the model's outputs."""
        stop = {t.grad_fn for t in outputs if t.grad_fn is not None}
        todo = [t.grad_fn for t in roots if t.grad_fn is not None and self._made(t.grad_fn) and t.grad_fn not in stop]
        seen: set[Any] = set(todo)
        nodes: list[Any] = []
        while todo:
            node = todo.pop()
            nodes.append(node)
            if len(nodes) > MAX_NODES:
                return
            for following, _ in node.next_functions:
                if following is not None and following not in seen and following not in stop and self._made(following):
                    seen.add(following)
                    todo.append(following)
        for node in nodes:
            forward = self.tape.forward_of(node.name(), node._sequence_nr())
            if hasattr(node, "_forward_cls"):  # a custom function's backward is Python code with lines of its own
                probe = OpProbe(self.tape, self.ledger, phase=Phase.BACKWARD)
                node.register_prehook(partial(self._guarded, self._custom_begins, probe))
                node.register_hook(partial(self._guarded, self._custom_ran, probe))
            elif forward is not None:
                node.register_hook(partial(self._guarded, self._node_ran, node.name(), forward))

    def _guarded(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:  # ours
            self._failed(error)

    def _made(self, node: Any) -> bool:
        """Whether a node is the stretch's own: the model's are done again by a replay, whether or not its outputs still live."""
        return node.name() != ACCUMULATE and any(node._sequence_nr() in made for made in self._nodes)

    def _custom_begins(self, probe: OpProbe, coming: Sequence[Tensor | None]) -> None:
        self._custom.append(probe)
        _push_mode(probe)

    def _custom_ran(self, probe: OpProbe, going: Sequence[Tensor | None], coming: Sequence[Tensor | None]) -> None:
        if probe in self._custom:
            self._custom.remove(probe)
        self._pop(probe)
        self.backward += [s for g in going if isinstance(g, Tensor) and (s := self.tape.state_of(g)) is not None]

    def _node_ran(self, node: str, forward: OpRecord, going: Sequence[Tensor | None], coming: Sequence[Tensor | None]) -> None:
        """A record of the backward operation as the op probe would have made it: incoming gradients, what was saved, results."""
        name = f"{forward.op.rstrip('_')}_backward"
        index = self.tape.first + len(self.tape.records)
        record = OpRecord(index, name, "", Phase.BACKWARD, forward.module, forward.stack, node=node, forward=forward)
        for i, gradient in enumerate(coming):
            if isinstance(gradient, Tensor):
                record.inputs.append(self._operand(f"grad_output[{i}]", gradient, ()))
        record.inputs += [o for o in (*forward.inputs, *forward.outputs) if o.state is not None]
        for i, gradient in enumerate(going):
            if isinstance(gradient, Tensor):
                result = self._operand(f"grad_input[{i}]", gradient, (index,))
                record.outputs.append(result)
                if result.state is not None:
                    self.backward.append(result.state)
        self.tape.records.append(record)

    def _operand(self, name: str, tensor: Tensor, writers: tuple[int, ...]) -> OperandRecord:
        return OperandRecord(name, State(self.ledger.observe(tensor), writers), None, tensor.dtype, tuple(tensor.shape))

    def reset(self) -> None:
        """Forget the step."""
        self.tape = OpTape(limit=4096)
        self.roots.clear()
        self.backward.clear()
        self._nodes.clear()
        if self._mode is not None:
            self._mode.tape = self.tape
