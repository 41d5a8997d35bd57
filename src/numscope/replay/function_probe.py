"""The function probe: records what a script does between models' calls by torch function instead of by operation.

An agent acts hundreds of times a step, so this must cost less than recording the loss at the end. Each function of torch is noted with its
results; a record is put on the tape only if the step turns out bad.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from numscope.probe.calls import is_traced
from numscope.records.faults import had_no_room, is_ours, ours
from numscope.records.site import Phase
from numscope.replay import stack as stacks
from numscope.replay.op import nonfinite_number, shape_of
from numscope.replay.tape import UNOBSERVED, OperandRecord, OpRecord, OpTape, Rows, State
from numscope.summary import native

Note = tuple[Any, ...]  # a function and its arguments

SMALL = 1 << 12  # elements of a tensor that is kept until the step is over; larger ones are read at once
_COMING, _FILLING = (-1,), (-2,)  # the writers of states whose records are in the log: of results, of buffers


@native.in_c
class FunctionProbe(TorchFunctionMode):
    """Notes every function of torch that makes a floating-point tensor.

    Arguments are read at once, because others (a simulator) may write to them without torch's knowledge. Results are read when the log is
    processed; their numbers are unknown if they were changed in the meantime.

    Args:
        tape: gets the records.
        rows: gets each tensor once.
        phase: of the records.
        names: known names of tensors, by id.
        note: gets for each record a function that creates it, and its arguments, in one tuple; they keep small results alive.
        flush: calls what was noted.

    *Cost:* 1 µs a function of torch, 5 more for one that makes a floating-point tensor. An error of its own disables it; training goes on.
    """

    def __init__(
        self,
        tape: OpTape,
        rows: Rows,
        phase: Phase,
        names: Mapping[int, str],
        note: Callable[[Note], None],
        flush: Callable[[], None],
    ) -> None:
        super().__init__()
        self.tape, self.rows, self.phase, self.names = tape, rows, phase, names
        self.error: Exception | None = None
        self.is_on = True
        self._log, self._flush = note, flush
        self._share(note, State, _COMING, Tensor.__setitem__, Tensor.__getitem__, type(self)._put, SMALL)
        vars(self)["__torch_function__"] = self.call  # torch looks here first, dynamo at the class

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {})) if torch.compiler.is_compiling() else self.call(func, types, args, kwargs)

    def call(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function, and note it if it makes a floating-point tensor."""
        if not self.is_on or is_traced():
            return func(*args, **(kwargs or {}))
        first = torch._C._autograd._get_sequence_nr()
        version = _version_of(args)
        result = func(*args, **(kwargs or {}))
        if version >= 0 and result is args[0] and _version_of(args) == version:
            return result  # it made nothing: ``to`` of what is so already
        results = args[:1] if func is Tensor.__setitem__ else tuple(result) if isinstance(result, tuple | list) else (result,)
        if results and type(results[0]) is Tensor and results[0].is_floating_point() and self.is_on:
            try:
                if func is Tensor.__setitem__:
                    self._note_part(args[0], args[2])
                elif func is not Tensor.__getitem__ or not self._take_part(args[0], result):
                    self._note(func, args, kwargs or {}, results, first)
            except ours() as error:
                self.caught(error)
        return result

    def caught(self, error: Exception) -> None:
        """An exception came as a function was noted."""
        if not is_ours(error):
            raise error
        if not had_no_room(error):
            self.error, self.is_on = error, False

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], results: tuple[Any, ...], first: int) -> None:
        given: list[Any] = []  # of each argument its place, its state or value, dtype, shape
        for place, value in enumerate((*args, *kwargs.values())):
            for item in value if isinstance(value, list | tuple) else (value,):
                if isinstance(item, Tensor):
                    written = any(item is t for t in results)  # in place: what it holds now was not what went in
                    given += (place, self._known(item) if written else self._state_of(item), item.dtype, tuple(shape_of(item)))
                elif isinstance(item, int | float):
                    given += (place, item, None, ())
        made: list[Any] = []  # of each result itself, its version, its state
        parts: list[State] = []  # of what a result is a part of that was written in place, before and after
        at_once = False
        for tensor in results:
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                state = State(UNOBSERVED, _COMING)
                self.tape.odd[id(tensor)] = (weakref.ref(tensor), state)
                at_once = at_once or tensor.numel() > SMALL or tensor.is_inference()
                made += (tensor.detach(), -1 if at_once else tensor._version, state)  # else its graph would stay, and what that saves
                if tensor._base is not None and args and tensor is args[0]:
                    parts += self._begin_part(tensor._base)
        last, stack = torch._C._autograd._get_sequence_nr(), stacks.walk(sys._getframe(1))
        put = type(self)._put
        self._log((put, self, func, len(args), tuple(kwargs), first, last, stack, len(given), len(made), *given, *made, *parts))
        if at_once:
            self._flush()

    def follow(self, tensors: Sequence[Tensor], writers: Sequence[OpRecord]) -> None:
        """Tell that one of these records, or several, wrote tensors; they may still be in the log."""
        made: list[Any] = []
        for tensor in tensors:
            state = State(UNOBSERVED, _COMING, self.names.get(id(tensor), ""))
            self.tape.odd[id(tensor)] = (weakref.ref(tensor), state)
            made += (tensor.detach(), -1 if tensor.numel() > SMALL else tensor._version, state)
        self._log((self._put_followed, made, writers))
        if -1 in made[1::3]:
            self._flush()

    def _put_followed(self, made: list[Any], writers: Sequence[OpRecord]) -> None:
        indices = tuple(record.index for record in reversed(writers) if record.index >= 0)
        for tensor, version, state in _groups(made, 3):
            if version == -1 or tensor._version == version:
                state.row = self.rows.observe(tensor)
            state.writers = indices

    def _share(self, *parts: object) -> None:
        """Tell C what it needs to note a function."""

    def _note_part(self, tensor: Tensor, value: Any) -> None:
        """``tensor[…] = value``. The tensor itself is read when it is used: it may be large, and written often."""
        fills = not isinstance(value, Tensor)
        if fills and not nonfinite_number(value):
            return
        given = State(self.rows.observe(tensor)) if fills else self._state_of(value)
        parts = [*self._begin_part(tensor), *(self._begin_part(tensor._base) if tensor._base is not None else ())]
        number = value if fills else None
        self._log((self._put_part, given, number, tensor.dtype, tensor.shape, parts, stacks.walk(sys._getframe(1))))

    def _begin_part(self, tensor: Tensor) -> tuple[State, State]:
        """The states of a tensor before and after a part of it is written."""
        before = self._known(tensor)
        after = State(UNOBSERVED, _FILLING)
        self.tape.odd[id(tensor)] = (weakref.ref(tensor), after)
        return before, after

    def _take_part(self, tensor: Any, part: Tensor) -> bool:
        """Whether ``tensor[…]`` is a part of a buffer that is being filled; reading all of it each time would cost too much."""
        whole = self._written(tensor) if isinstance(tensor, Tensor) else None
        if whole is None or whole.row != UNOBSERVED or not whole.writers or whole.writers is _COMING:
            return False
        self.tape.odd[id(part)] = (weakref.ref(part), State(self.rows.observe(part), whole.writers))
        return True

    def _known(self, tensor: Tensor) -> State:
        """What is known of a tensor without a look at it; of one that is in the log, what will be known."""
        known = self.tape.odd.get(id(tensor))
        found = known[1] if known is not None and known[0]() is tensor else self.tape.state_of(tensor)
        return State(UNOBSERVED, (), self.names.get(id(tensor), "")) if found is None else found

    def _written(self, tensor: Tensor) -> State:
        """``_known``, with those that wrote parts of it."""
        found = self._known(tensor)
        if found.writers is _FILLING:
            self._flush()
        return found

    def _state_of(self, tensor: Tensor) -> State:
        """Of a result that is in the log, or read now."""
        found = self._written(tensor)
        if found.row == UNOBSERVED and found.writers is not _COMING and tensor.is_floating_point():
            found = State(self.rows.observe(tensor), found.writers, self.names.get(id(tensor), ""))
        self.tape.odd[id(tensor)] = (weakref.ref(tensor), found)
        return found

    def _put(
        self,
        func: Any,
        num_args: int,
        keywords: Sequence[str],
        first: int,
        last: int,
        walked: Sequence[Any],
        num_given: int,
        num_made: int,
        *flat: Any,
    ) -> None:
        """Put a record on the tape. ``flat``: what went in, what was made, and the parts of it."""
        given, made, parts = flat[:num_given], flat[num_given : num_given + num_made], flat[num_given + num_made :]
        name, arguments = _described(func)
        record = OpRecord(-1, name, self.phase, "", stacks.of_walk(walked))
        slots = (*arguments[:num_args], *(f"arg{i}" for i in range(len(arguments), num_args)), *keywords)
        for place, item, dtype, shape in _groups(given, 4):
            state, value = (item, None) if isinstance(item, State) else (None, item)
            record.inputs.append(OperandRecord(slots[place], state, value, dtype, tuple(shape)))
        self.tape.add(record)
        for tensor, version, state in _groups(made, 3):
            if version == -1 or tensor._version == version:
                state.row = self.rows.observe(tensor)
            state.writers = (record.index,)
            record.outputs.append(OperandRecord("output", state, None, tensor.dtype, shape_of(tensor)))
        self._end_parts(record, parts)
        record.differentiable = first < last
        for node in range(first, last):
            self.tape.add_node(node, record)

    def _put_part(
        self, given: State, number: float | None, dtype: torch.dtype, shape: tuple[int, ...], parts: Sequence[Any], walked: Sequence[Any]
    ) -> None:
        """Put a record of a part that was written on the tape."""
        record = OpRecord(-1, "aten.copy" if number is None else "aten.fill", self.phase, "", stacks.of_walk(walked))
        record.inputs.append(OperandRecord("value", given if number is None else None, number))
        self.tape.add(record)
        record.outputs.append(OperandRecord("output", State(given.row, (record.index,)), None, dtype, tuple(shape)))
        self._end_parts(record, parts)

    def _end_parts(self, record: OpRecord, parts: Sequence[Any]) -> None:
        for before, after in _groups(parts, 2):
            after.writers = (record.index, *before.writers)[: self.tape.limit]


def _version_of(args: tuple[Any, ...]) -> int:
    """The first argument's version; -1 for none."""
    return args[0]._version if args and isinstance(args[0], Tensor) and not args[0].is_inference() else -1


def _groups(flat: Sequence[Any], size: int) -> Iterator[tuple[Any, ...]]:
    """Flat ones are one object each for the garbage collector, however many there are."""
    return zip(*[iter(flat)] * size, strict=True)


@lru_cache(maxsize=4096)
def _described(func: Any) -> tuple[str, tuple[str, ...]]:
    """A function's name as operators are named, and its arguments' names."""
    plain = getattr(func, "__name__", str(func)).strip("_")
    plain = {"truediv": "div", "rtruediv": "div", "getitem": "index"}.get(plain, plain)
    packet = getattr(torch.ops.aten, plain, None)
    overloads = packet.overloads() if packet is not None else ()
    arguments = getattr(packet, overloads[0])._schema.arguments if packet is not None and overloads else ()
    return f"aten.{plain}", tuple(a.name for a in arguments)
