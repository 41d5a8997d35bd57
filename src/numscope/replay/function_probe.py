"""The calls of torch's functions outside the models, each with its result's numbers and line: a tenth of what every operation costs.

An agent that acts 150 times before it learns spends more on the operations between its calls than on the calls. There, the tape gets one
record a function (``torch.log``, not each operation below it), and tensors are followed by identity instead of by memory.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from numscope.records.site import Phase
from numscope.replay import stack as stacks
from numscope.replay.op import nonfinite_number
from numscope.replay.tape import UNOBSERVED, OperandRecord, OpRecord, OpTape, Rows, State


class FunctionProbe(TorchFunctionMode):
    """Puts every function of torch that makes a floating-point tensor on a tape.

    Args:
        tape: gets the records.
        rows: gets each tensor once.
        names: what is known of tensors by id.

    *Cost:* about 6 µs a function, one pass over each new tensor. An error of its own disables it and training goes on.
    """

    def __init__(self, tape: OpTape, rows: Rows, names: Mapping[int, str]) -> None:
        super().__init__()
        self.tape, self.rows, self.names = tape, rows, names
        self.error: Exception | None = None
        self.is_on = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.is_on:
            return func(*args, **(kwargs or {}))
        first = torch._C._autograd._get_sequence_nr()
        result = func(*args, **(kwargs or {}))
        if self.is_on and self.error is None:
            try:
                if func is Tensor.__setitem__:
                    self._see_part_written(args[0], args[2])
                elif type(result) is Tensor or (type(result) is tuple and result and type(result[0]) is Tensor):
                    self._see(func, args, kwargs or {}, result, first)
            except Exception as error:
                self.error = error
        return result

    def _see(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, first: int) -> None:
        results = [t for t in (result if type(result) is tuple else (result,)) if isinstance(t, Tensor) and t.is_floating_point()]
        if not results:
            return
        if func is Tensor.__getitem__ and (whole := self._known(args[0])).row == UNOBSERVED and whole.writers:
            self.tape.odd[id(result)] = (weakref.ref(result), State(self.rows.observe(result), whole.writers))
            return  # a part of a buffer that is being filled; reading all of it each time would cost too much
        name, arguments = _described(func)
        record = OpRecord(-1, name, Phase.LOSS, "", stacks.capture(sys._getframe(2)))
        slots = (*arguments[: len(args)], *(f"arg{i}" for i in range(len(arguments), len(args))), *kwargs)
        for slot, value in zip(slots, (*args, *kwargs.values()), strict=True):
            for tensor in value if isinstance(value, list | tuple) else (value,):
                if isinstance(tensor, Tensor):
                    written = any(tensor is t for t in results)  # in place: what it holds now was not what went in
                    state = self._known(tensor) if written else self._read(tensor)
                    record.inputs.append(OperandRecord(slot, state, None, tensor.dtype, tuple(tensor.shape)))
                elif isinstance(tensor, int | float):
                    record.inputs.append(OperandRecord(slot, None, tensor))
        self.tape.add(record)
        for tensor in results:
            state = State(self.rows.observe(tensor), (record.index,))
            self.tape.odd[id(tensor)] = (weakref.ref(tensor), state)
            if tensor._base is not None and any(tensor is value for value in args[:1]):
                self._write_part(tensor._base, record)
            record.outputs.append(OperandRecord("output", state, None, tensor.dtype, tuple(tensor.shape)))
        for node in range(first, torch._C._autograd._get_sequence_nr()):
            record.differentiable = True
            self.tape.add_node(node, record)

    def _see_part_written(self, tensor: Tensor, value: Any) -> None:
        """``tensor[…] = value``. The tensor itself is read when it is used: it may be large, and written often."""
        fills = not isinstance(value, Tensor)
        if not tensor.is_floating_point() or (fills and not nonfinite_number(value)):
            return
        record = OpRecord(-1, "aten.fill" if fills else "aten.copy", Phase.LOSS, "", stacks.capture(sys._getframe(2)))
        state = None if fills else self._read(value)
        record.inputs.append(OperandRecord("value", state, value if fills else None))
        self.tape.add(record)
        row = self.rows.observe(tensor) if state is None else state.row
        record.outputs.append(OperandRecord("output", State(row, (record.index,)), None, tensor.dtype, tuple(tensor.shape)))
        self._write_part(tensor, record)
        if tensor._base is not None:
            self._write_part(tensor._base, record)

    def _write_part(self, tensor: Tensor, record: OpRecord) -> None:
        state = State(UNOBSERVED, (record.index, *self._known(tensor).writers)[: self.tape.limit])
        self.tape.odd[id(tensor)] = (weakref.ref(tensor), state)

    def _known(self, tensor: Tensor) -> State:
        """What is known of a tensor without a look at it."""
        known = self.tape.odd.get(id(tensor))
        found = known[1] if known is not None and known[0]() is tensor else self.tape.state_of(tensor)
        return State(UNOBSERVED, (), self.names.get(id(tensor), "")) if found is None else found

    def _read(self, tensor: Tensor) -> State:
        found = self._known(tensor)
        if found.row == UNOBSERVED and tensor.is_floating_point():
            found = State(self.rows.observe(tensor), found.writers, self.names.get(id(tensor), ""))
        self.tape.odd[id(tensor)] = (weakref.ref(tensor), found)
        return found


@lru_cache(maxsize=4096)
def _described(func: Any) -> tuple[str, tuple[str, ...]]:
    """A function's name as operators are named, and its arguments' names."""
    plain = getattr(func, "__name__", str(func)).strip("_")
    plain = {"truediv": "div", "rtruediv": "div", "getitem": "index"}.get(plain, plain)
    packet = getattr(torch.ops.aten, plain, None)
    overloads = packet.overloads() if packet is not None else ()
    arguments = getattr(packet, overloads[0])._schema.arguments if packet is not None and overloads else ()
    return f"aten.{plain}", tuple(a.name for a in arguments)
