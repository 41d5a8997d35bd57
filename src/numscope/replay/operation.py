"""One operation with copies of what it is given, so that it can be done alone."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map, tree_map_only

from numscope.records.faults import had_no_room, ours
from numscope.records.finding import Numbers
from numscope.replay.op import OpProbe, named_arguments, op_of
from numscope.replay.tape import NumberStore, OperandRecord, OpRecord, OpTape
from numscope.summary.ledger import Ledger

MOST_BYTES = 64 << 20  # of operands that are written
_TORCH = ("aten", "prims", "mkldnn", "quantized")  # namespaces of operators that are there once torch is imported

keepers: weakref.WeakSet[Any] = weakref.WeakSet()  # who wants operations kept that fail outside of the models' calls


class Unwritable(Exception):
    """An operation that can't be done alone; the text says why."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator and its arguments, whose tensors are copies in CPU memory.

    Args:
        random: the state of torch's generator on the CPU from which it draws; None if it draws nothing.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random: Tensor | None

    @classmethod
    def of(cls, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], random: Tensor | None) -> Operation:
        """Copy the arguments; memory that is written without being read becomes 0. Raises: Unwritable."""
        if getattr(func, "namespace", "") not in _TORCH:
            raise Unwritable(f"{func} is no operator of plain torch")
        op = op_of(func)
        copies, more = tree_map(_copied, (tuple(args), dict(kwargs)))
        for name, value in (*zip(op.arguments, copies, strict=False), *more.items()):
            if name in op.unread and isinstance(value, Tensor):
                value.zero_()
        return cls(func, copies, more, random)

    def of_one(self, at: int) -> Operation:
        """The same of one place of all its lists, of an operator that works on each place alone."""

        def one(value: Any) -> Any:
            return value[at : at + 1] if isinstance(value, list) else value

        return Operation(self.func, tuple(map(one, self.args)), {name: one(value) for name, value in self.kwargs.items()}, self.random)


def state_for(func: Any) -> Tensor | None:
    """The state of torch's generator, if an operator draws from it."""
    return torch.get_rng_state() if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()) else None


def _copied(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if type(value) not in (Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        raise Unwritable(f"an operand is a {type(value).__name__} of layout {value.layout}")
    return value.detach().clone().cpu()


def fails(given: Sequence[Numbers], made: Sequence[Numbers]) -> bool:
    """Whether there is a nan that was not, or an infinity of finite operands. A mask's infinities are no fault."""
    if any(n.num_nan for n in given):
        return False
    return any(n.num_nan or (n.num_nonfinite and not any(g.num_nonfinite for g in given)) for n in made)


def has_failed(record: OpRecord, rows: NumberStore) -> bool:
    """``fails`` of an operation whose rows have been read."""
    return fails([*map(rows.numbers, _rows(record.inputs))], [*map(rows.numbers, _rows(record.outputs))])


def _rows(operands: Sequence[OperandRecord]) -> list[int]:
    return [o.state.row for o in operands if o.state is not None and o.state.row >= 0]


class KeepingProbe(OpProbe):  # type: ignore[no-untyped-call]
    """Keeps operations that make what is not finite from finite operands, each with its record.

    *Cost:* as of an op probe, and a copy of what an operation writes in place; of operands only where it fails. On a device, where nothing
    is known of numbers as an operation runs, none is kept.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, num = kwargs or {}, self.tape.num_records
        given: tuple[Any, ...] = args, kwargs, None
        if self.is_on:
            with self._caught():
                given = *_as_it_begins(func, args, kwargs), state_for(func)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.is_on and self.error is None and self.tape.num_records > num:
            with self._caught():
                record, is_bad = self.tape.records[-1], self.rows.is_bad
                if (
                    any(map(is_bad, _rows(record.outputs)))
                    and None not in map(is_bad, _rows(record.inputs))
                    and has_failed(record, self.rows)
                ):
                    record.operation = _kept(func, *given)
        return result

    @contextlib.contextmanager
    def _caught(self) -> Iterator[None]:
        try:
            yield
        except ours() as error:
            self.error = None if had_no_room(error) else error


def _as_it_begins(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments, with copies of those that are read and written."""
    op = op_of(func)
    if op.written <= op.unread:
        return args, kwargs
    given = {
        name: tree_map_only(Tensor, torch.clone, value) if name in op.written else value
        for name, value in named_arguments(op, args, kwargs)
    }
    return [*given.values()][: len(args)], {name: given[name] for name in kwargs}


def _kept(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], random: Tensor | None) -> Operation | str:
    try:
        return Operation.of(func, args, kwargs, random)
    except Unwritable as why:
        return str(why)


def of_node(node: Any, coming: Sequence[Tensor | None]) -> object:
    """The operation that fails in a node of autograd, or why it is not kept; None if none does. The node has just run on these gradients,
    and still has what it saved."""
    tape = OpTape()
    if not all(g is None or g.is_cpu for g in coming):  # whether it has made anything bad is not known yet
        return None
    try:
        with torch.no_grad(), KeepingProbe(tape, Ledger(capacity=16)):
            node(*(None if g is None else g.detach() for g in coming))
    except ours() as error:
        return f"{node.name()} raised {type(error).__name__} when it was done again"
    return next((record.operation for record in tape.records if record.operation is not None), None)


def full_probe(tape: OpTape, rows: Ledger, **how: Any) -> OpProbe:
    """An op probe for what runs outside of the models' calls."""
    return KeepingProbe(tape, rows, **how) if keepers else OpProbe(tape, rows, **how)
