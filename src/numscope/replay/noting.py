"""An op probe that writes down, of most operations, only what their records are made of, should anybody ask for them.

What a script does outside its models' calls is recorded all the time and hardly ever looked at. So what the tape needs to know is noted in
C; the tape gets its records, the same ones, when something is bad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from numscope.records.faults import had_no_room, is_ours
from numscope.records.site import Phase
from numscope.replay import stack as stacks
from numscope.replay.glance import Glance, glances, unpacked
from numscope.replay.log import Log
from numscope.replay.named import Named
from numscope.replay.op import COLLECTIVES, OpProbe, named_arguments, op_of
from numscope.replay.tape import OpRecord, OpTape, Rows
from numscope.summary import native

_IS_VIEW, _IS_BLANK = 1, 2  # of an operator: its result is no new memory; nobody has written its result
_IS_WRITTEN, _IS_UNREAD = 1, 2  # of its arguments


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
        self, tape: OpTape, rows: Rows, *, phase: Phase, names: Named, log: Log, flush: Callable[[], None], most: int,
        end: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(tape, rows, phase=phase, names=names, written=self._count)
        self.num = 0
        self._log, self._flush, self._most, self._end = log, flush, most, end
        self._share(log, _plans, names.items_by_id, type(self)._put, most)

    def _share(self, *parts: object) -> None:
        """Tell C what it notes with."""

    def _count(self) -> None:
        self.num += 1
        if self.num == self._most:
            self._end()

    def _plan(self, func: Any) -> tuple[bytes, tuple[str, ...]] | None:
        """What C is to know of an operator: flags of it and of its arguments, and their names; None: it is recorded at once."""
        op = op_of(func)
        plan = None
        if getattr(func, "_schema", None) is not None and not (op.waits or op.collective or op.part or func.namespace in COLLECTIVES):
            flags = [_IS_WRITTEN * (name in op.written) + _IS_UNREAD * (name in op.unread) for name in op.arguments]
            plan = bytes([_IS_VIEW * op.view + _IS_BLANK * op.uninitialized, *flags]), op.arguments
        _plans[func] = plan
        return plan

    def _at_once(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Record an operation as it runs."""
        self._flush()
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
        self._log.append((self._follow, seen, writers))

    def caught(self, error: Exception) -> None:
        """An exception came as an operation was noted."""
        if not is_ours(error):
            raise error
        self.error = None if had_no_room(error) else error

    def _put(
        self, func: Any, num_args: int, keywords: tuple[str, ...], seq: int, differentiable: bool, walked: Any, given: bytes, made: bytes,
        *flat: Any,
    ) -> None:  # fmt: skip
        """Make a record of a note.

        Args:
            seq: of the operation's node, if it made one.
            walked: the stack, see ``stack.of_walk``.
            given, made: layouts of ``flat``: what went in; then what was written of it, and the result.
        """
        op, values = op_of(func), iter(flat)
        names = [op.arguments[i] if i < len(op.arguments) else f"arg{i}" for i in range(num_args)]
        before = list(zip([*names, *keywords], unpacked(given, values), strict=True))
        *after, result = unpacked(made, values)
        written = list(zip([name for name, _ in before if name in op.written], after, strict=True))
        self._record(op, seq, differentiable, walked, before, written, result)

    def _put_now(self, args: Any, kwargs: Any, result: Any) -> None:
        """Make a record of the last note, whose operation has returned what C can't note."""
        *_, func, _, _, seq, differentiable, walked, given, _ = (last := self._log.pop())[:10]
        self._flush()
        op, named = op_of(func), named_arguments(op_of(func), args, kwargs or {})
        before = list(zip([name for name, _ in named], unpacked(given, iter(last[10:])), strict=True))
        written = [(name, glances(value, self.names)) for name, value in named if name in op.written]
        self._record(op, seq, differentiable, walked, before, written, glances(result, self.names))
        self._count()

    def _record(
        self,
        op: Any,
        seq: int,
        differentiable: bool,
        walked: Any,
        given: list[tuple[str, Any]],
        written: list[tuple[str, Any]],
        result: Any,
    ) -> None:
        record = OpRecord(-1, op.name, self.phase, "", stacks.of_walk(walked), differentiable=differentiable)
        with self.tape.lock:
            if seq >= self.first_seq:
                self.tape.add_node(seq, record)
            if self._before(op, record, given, False):
                self._after(op, record, given, written, result)


_plans: dict[Any, tuple[bytes, tuple[str, ...]] | None] = {}  # by operator
