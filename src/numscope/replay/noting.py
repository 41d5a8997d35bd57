"""Probes that write down, of most operations, only what their records are made of, should anybody ask for them.

What a script does outside its models' calls is recorded all the time and hardly ever looked at. So what the tape needs to know is noted in
C; the tape gets its records, the same ones, when something is bad.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from numscope.probe.dynamo import run_plainly
from numscope.records.faults import had_no_room, is_ours, ours
from numscope.records.site import Phase
from numscope.replay import stack as stacks
from numscope.replay.as_bare import call, needs_care
from numscope.replay.glance import Glance, glances, unpacked
from numscope.replay.log import Log
from numscope.replay.named import Named
from numscope.replay.op import COLLECTIVES, UNINITIALIZED, OpProbe, flat, named_arguments, op_of, tensors_in
from numscope.replay.tape import NumberStore, OpRecord, OpTape
from numscope.summary import native

Given = list[tuple[str, Any]]  # arguments by name

# Of an operator: its result is no new memory; nobody has written its result; within a mode it does other things than outside.
_IS_VIEW, _IS_BLANK, _NEEDS_CARE = 1, 2, 4
_IS_WRITTEN, _IS_UNREAD = 1, 2  # of its arguments
_plans: dict[Any, tuple[bytes, tuple[str, ...]] | None] = {}  # by operator


@native.in_c
class NotingProbe(OpProbe):  # type: ignore[no-untyped-call]
    """Notes operations on plain tensors in CPU memory; all others, and those that get something bad, are recorded at once.

    Numbers are read as the operation runs. Nothing is kept alive but numbers and code objects.

    Args:
        log: gets the notes.
        flush: makes records of them.
        most: operations, after which ``end`` is called.

    Attributes:
        num: operations so far.

    *Cost:* about 10 µs an operation, plus one pass over each operand and result not seen before. An error of its own disables it; training
    goes on.
    """

    def __init__(
        self, tape: OpTape, rows: NumberStore, log: Log, *, phase: Phase, names: Named, flush: Callable[[], None], most: int,
        end: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(tape, rows, phase=phase, names=names)
        self.names: Named
        self.num = 0
        self.log, self._flush, self._most, self._end = log, flush, most, end
        self._share(log, _plans, names.items_by_id, type(self)._put, None, most)

    def _share(self, *parts: object) -> None:
        """Tell C what it notes with."""

    _call = staticmethod(call)  # for C

    def _count(self) -> None:
        self.num += 1
        if self.num == self._most:
            self._end()

    @run_plainly
    def _plan(self, func: Any) -> tuple[bytes, tuple[str, ...]] | None:
        """An operator as C knows it: flags of it and of its arguments, and their names; None: it is recorded at once."""
        op = op_of(func)
        plan = None
        if getattr(func, "_schema", None) is not None and not (op.waits or op.collective or op.part or func.namespace in COLLECTIVES):
            flags = [_IS_WRITTEN * (name in op.written) + _IS_UNREAD * (name in op.unread) for name in op.arguments]
            plan = bytes([_IS_VIEW * op.view + _IS_BLANK * op.uninitialized + _NEEDS_CARE * needs_care(func), *flags]), op.arguments
        _plans[func] = plan
        return plan

    def _at_once(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Record an operation as it runs."""
        try:
            if self.log.num_noted and any(t.is_cpu for t in tensors_in((*args, *(kwargs or {}).values()))):  # others are never noted
                self._flush()
        except ours() as error:
            self.caught(error)
        return OpProbe.__torch_dispatch__(self, func, types, args, kwargs)

    def follow(self, tensors: Sequence[Tensor], writers: Sequence[OpRecord]) -> None:
        """As ``OpProbe.follow``, once the records before are made; those that wrote the tensors may be among them."""
        seen: list[Glance] = glances(list(tensors), self.names)
        if any(one.storage is None for one in seen):
            self._flush()
            self._follow(seen, writers)
            return
        for one in seen:
            one.tensor = None  # nothing is kept alive
        self.log.append((self._follow, seen, writers))

    def caught(self, error: Exception) -> None:
        """An exception came as an operation was noted."""
        _caught(self, error)

    def _put(
        self, func: Any, num_args: int, keywords: tuple[str, ...], seq: int, past: int, differentiable: bool, walked: Any, given: bytes,
        made: bytes, *flat: Any,
    ) -> None:  # fmt: skip
        """Make a record of a note.

        Args:
            seq, past: the nodes that it may have made have the numbers from ``seq`` on, up to ``past``.
            walked: the stack, see ``stack.of_walk``.
            given, made: layouts of ``flat``: what went in; then what was written of it, and the result.
        """
        op, values = op_of(func), iter(flat)
        before = _named(op.arguments, num_args, keywords, unpacked(given, values))
        *after, result = unpacked(made, values)
        written = list(zip([name for name, _ in before if name in op.written], after, strict=True))
        self._record(op, range(seq, past), differentiable, stacks.of_walk(walked), before, written, result)

    def _put_now(self, args: Any, kwargs: Any, result: Any) -> None:
        """Make a record of the last note, whose operation has returned what C can't note."""
        _, _, func, num_args, keywords, seq, past, differentiable, walked, given, _, *flat = self.log.pop()
        self._flush()
        op = op_of(func)
        before = _named(op.arguments, num_args, keywords, unpacked(given, iter(flat)))
        written = [(name, glances(value, self.names)) for name, value in named_arguments(op, args, kwargs or {}) if name in op.written]
        self._record(op, range(seq, past), differentiable, stacks.of_walk(walked), before, written, glances(result, self.names))
        self._count()

    def put_function(
        self, func: Any, num_args: int, keywords: tuple[str, ...], seq: int, past: int, differentiable: bool, walked: Any, given: bytes,
        made: bytes, *flat: Any,
    ) -> None:  # fmt: skip
        """``_put`` of a function; of what was written, the place among the arguments goes before it."""
        name, arguments = _described(func)
        values = iter(flat)
        before = _named(arguments, num_args, keywords, unpacked(given, values))
        *after, result = unpacked(made, values)
        written = [(before[place][0], value) for place, value in zip(after[::2], after[1::2], strict=True)]
        op = _Function(name, before, written, result)
        self._record(op, range(seq, past), differentiable, stacks.of_walk(walked), before, written, result)

    def record_function(self, func: Any, args: Any, kwargs: Any, result: Any, places: list[int], seq: int, past: int) -> None:
        """``put_function``, as the function has returned, of what C can't note. ``places``: of the arguments that were written."""
        self._flush()
        name, arguments = _described(func)
        before = _named(
            arguments, len(args), tuple(kwargs or ()), [glances(value, self.names) for value in (*args, *(kwargs or {}).values())]
        )
        written = [before[place] for place in places]
        made = glances(result, self.names)
        op = _Function(name, before, written, made)
        before = [(name, value) for name, value in before if name not in op.written]  # what these were is not known any more
        self._record(op, range(seq, past), seq < past, stacks.capture(sys._getframe()), before, written, made)

    def _record(self, op: Any, nodes: range, differentiable: bool, stack: stacks.Stack, given: Given, written: Given, result: Any) -> None:
        record = OpRecord(-1, op.name, self.phase, "", stack, differentiable=differentiable)
        with self.tape.lock:
            for seq in nodes:
                if seq >= self.first_seq:
                    self.tape.add_node(seq, record)
            if self._before(op, record, given, False):
                self._after(op, record, given, written, result)


@native.in_c
class FunctionProbe(TorchFunctionMode):
    """Notes functions of torch. They are fewer than operations, and torch takes 1 µs to show one, where it takes 5 for an operation.

    What goes on within a function is not known then, nor which elements of an operand its result comes from.

    Args:
        maker: makes the records.
        most, end: as for ``NotingProbe``.

    *Cost:* 1 µs a function of torch, 4 more for one that makes or writes a floating-point tensor.
    """

    def __init__(self, maker: NotingProbe, *, most: int, end: Callable[[], None]) -> None:
        super().__init__()
        self.maker, self.phase, self._end = maker, maker.phase, end
        self.error: Exception | None = None
        self.is_on, self.num = True, 0
        self.follow, self.use, self._at_once = maker.follow, maker.use, maker.record_function
        self._share(maker.log, _plans, maker.names.items_by_id, NotingProbe.put_function, maker, most)
        vars(self)["__torch_function__"] = self.call  # torch looks here first, dynamo at the class

    def _share(self, *parts: object) -> None:
        """Tell C what it notes with."""

    def call(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function; C notes it."""
        return func(*args, **(kwargs or {}))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {})) if torch.compiler.is_compiling() else self.call(func, types, args, kwargs)

    def caught(self, error: Exception) -> None:
        """An exception came as a function was noted."""
        _caught(self, error)


def _caught(probe: NotingProbe | FunctionProbe, error: Exception) -> None:
    if not is_ours(error):
        raise error
    if not had_no_room(error):
        probe.error, probe.is_on = error, False


class _Function:
    """A function of torch that has returned, as op.py knows an operator."""

    waits = collective = part = elementwise_lists = False

    def __init__(self, name: str, given: Given, written: Given, result: Any) -> None:
        plain = name.removeprefix("aten.")
        makes_alike = plain.startswith("new_") or plain.endswith("_like")
        self.name, self.written = name, frozenset(name for name, _ in written)
        self.unread = frozenset(name for name, _ in given[:1]) if makes_alike else frozenset()
        self.uninitialized = plain in UNINITIALIZED
        made, held = flat([result]), {id(one.storage) for one in flat([value for _, value in given]) if one.storage is not None}
        self.view = not written and bool(made) and all(id(one.storage) in held for one in made)


def _named(arguments: tuple[str, ...], num_args: int, keywords: tuple[str, ...], values: list[Any]) -> Given:
    names = [arguments[i] if i < len(arguments) else f"arg{i}" for i in range(num_args)]
    return list(zip([*names, *keywords], values, strict=True))


@lru_cache(maxsize=4096)
def _described(func: Any) -> tuple[str, tuple[str, ...]]:
    """A function's name as operators are named, and its arguments' names."""
    plain = getattr(func, "__name__", str(func)).strip("_")
    plain = {"truediv": "div", "rtruediv": "div", "getitem": "index", "setitem": "copy"}.get(plain, plain)
    packet = getattr(torch.ops.aten, plain, None)
    overloads = packet.overloads() if packet is not None else ()
    found = getattr(packet, overloads[0])._schema.arguments if packet is not None and overloads else ()
    return f"aten.{plain}", tuple(a.name for a in found)
