"""Does each operation of a step once more in float64: on the operands that it had, and on what float64 made of the operations before it.

The first says whether the operation itself is right; the second how much of its result is left of what the step would give without any
rounding. Numbers in float64 lie beside each piece of memory, so that views, writes in place and what the backward has saved see them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from numscope.records.faults import ours
from numscope.replay.op import named_arguments, op_of
from numscope.replay.tape import OpTape

_ROUNDED = 32  # times what rounding an operand, or the result, changes: more is not rounding
_GOLDEN = (math.sqrt(5) - 1) / 2  # multiples of which spread evenly between 0 and 1
_DRAWS = 2  # of operands that are rounded otherwise
_WIDE = {torch.complex64: torch.complex128, torch.complex128: torch.complex128}
_REDUCED = {"highest": 2.0**-24, "high": 2.0**-11, "medium": 2.0**-8}  # float32_matmul_precision: rounding of a product's operands
_PRODUCTS = ("mm", "matmul", "bmm", "conv", "attention", "linear", "dot", "mv")


class TooLarge(Exception):
    """The numbers in float64 need more than half of the memory that is free."""

    def __init__(self) -> None:
        super().__init__(str(self.__doc__))


@dataclass(frozen=True, slots=True)
class Off:
    """An operation whose result is not what its operands give in float64.

    Args:
        index: of its record on the tape.
        error: the largest of an element, of the largest magnitude of the result.
        rounding: the same, as far as rounding explains it.
        dtype: in which it rounds, the coarsest of its results'.
    """

    index: int
    error: float
    rounding: float
    dtype: torch.dtype


def distance(tensor: Tensor, exact: Tensor) -> float:
    """Norm of the difference, of the exact one's; 0 where both are 0."""
    apart, size = float((widened(tensor) - exact).norm()), float(exact.norm())
    return apart / size if size else (math.inf if apart else 0.0)


class Shadows(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Under an ``OpProbe`` with that tape, whose records' indices the errors have.

    Args:
        room: bytes that the numbers in float64 may take, with copies of what they stand for.
        foreign: operators that are not torch's own may be run on float64: one that takes another dtype for granted may end the process.

    Attributes:
        errors: by index of a record, the distance of its results from those in float64, with all errors of the operations before.
        off: operations that are wrong by themselves, in order.
        drew: random numbers, some operation.
        unasked: names of operators that do not run in float64; behind them the step in float64 begins anew with the run's numbers.

    Raises: TooLarge, from within the operation. *Cost:* two to four times each operation, in float64.
    """

    supports_higher_order_operators = True

    def __init__(self, tape: OpTape, room: int, foreign: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tape, self._room, self._foreign = tape, room, foreign
        self._held: dict[tuple[int, torch.dtype], tuple[Any, Tensor, Tensor]] = {}  # the memory; its numbers; what it held then
        self.errors: dict[int, float] = {}
        self.off: list[Off] = []
        self.drew = False
        self.unasked: set[str] = set()

    def of(self, tensor: Tensor) -> Tensor:
        """Its numbers in float64, a view of those of its memory; its own where they are not known yet, or where something has written them
        that is no operation of torch's: a kernel by their address, NumPy.

        Raises: TooLarge.
        """
        numbers, known = self._views(tensor)
        if not torch.equal(known, tensor.detach()):
            self._take(tensor, widened(tensor))
        return numbers

    def _take(self, tensor: Tensor, right: Tensor) -> None:
        """A tensor has been written, and would be this."""
        for dim in (d for d, stride in enumerate(tensor.stride()) if not stride and tensor.size(d) > 1):  # one element, many times
            tensor, right = tensor.narrow(dim, 0, 1), right.narrow(dim, 0, 1)
        numbers, known = self._views(tensor)
        numbers.copy_(right)
        known.copy_(tensor.detach())

    def _views(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        storage = tensor.untyped_storage()
        key, num = (storage._cdata, tensor.dtype), storage.nbytes() // tensor.element_size()
        held = self._held.get(key)
        if held is None or held[1].numel() < num:
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage)
            self._room -= num * (_width(tensor.dtype).itemsize + tensor.element_size())
            if self._room < 0:
                raise TooLarge
            held = self._held[key] = storage, widened(flat).clone(), flat.clone()
        where = tensor.size(), tensor.stride(), tensor.storage_offset()
        views = held[1].as_strided(*where), held[2].as_strided(*where)
        if tensor.is_conj():
            views = views[0].conj(), views[1].conj()
        return views if not tensor.is_neg() else (torch._neg_view(views[0]), torch._neg_view(views[1]))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        op = op_of(func)
        given = _floats((args, kwargs))
        if op.view or not all(issubclass(t, Tensor) and t.__name__ in ("Tensor", "Parameter") for t in types):
            return func(*args, **kwargs)
        index = self._tape.num_records
        named = named_arguments(op, args, kwargs)
        written = {id(t): t for name, value in named if name in op.written for t in tree_leaves(value) if isinstance(t, Tensor)}
        is_seeded = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        is_random = is_seeded and bool(dict(named).get("dropout_p", "dropout_p" not in op.arguments))
        self.drew |= is_random
        is_taken = is_random or op.uninitialized or op.collective or op.name == "aten.set_" or not hasattr(func, "_schema")
        can_run = not is_taken and all(map(_is_float, written.values())) and op.name not in self.unasked
        if can_run and not (self._foreign or op.name.startswith(("aten.", "prims."))):
            can_run = False
            if given:
                self.unasked.add(op.name)
        for tensor in given:
            self.of(tensor)  # as it is before anything writes it
        before = {id(t): widened(t).clone() for t in given} if can_run else {}
        result = func(*args, **kwargs)
        results = _floats(result)
        if not results and not written:
            return result
        exact = in_float64(op, func, args, kwargs, lambda t: self._views(t)[0]) if can_run else None
        if exact is None:
            if can_run:
                self.unasked.add(op.name)
            for tensor in [*results, *_floats(list(written.values()))]:
                self._take(tensor, widened(tensor))
            return result
        for tensor, right in zip(results, _floats(exact), strict=False):
            if tensor.shape == right.shape:
                self._take(tensor, right)
        for tensor in written.values():
            self._take(tensor, self._views(tensor)[0])
        if results:
            self.errors[index] = max(distance(t, self.of(t)) for t in results)
        unit = _unit(op, results)

        def as_it_is(draw: int) -> Any:
            def rounded(value: Any) -> Any:
                return _disturbed(unit, draw, before[id(value)], value).to(value.dtype) if _is_float(value) else value

            return func(*tree_map(rounded, args), **tree_map(rounded, kwargs))

        self._judge(index, results, lambda wide: in_float64(op, func, args, kwargs, lambda t: wide(before[id(t)], t)), as_it_is, unit)
        return result

    def _judge(
        self,
        index: int,
        results: Sequence[Tensor],
        run: Callable[[Callable[[Tensor, Tensor], Tensor]], Any],
        again: Callable[[int], Any],
        unit: float,
    ) -> None:
        """Hold an operation's results against those of its own operands in float64.

        Args:
            run: the operation, with each operand made from itself in float64, as it was before, and as it is.
            again: the operation in its own dtype, with each operand off by one rounding. A result that is a small difference of large
                terms moves as much by that as it is off.
        """
        if all(widened(t).dtype is t.dtype for t in results):
            return
        rights = _floats(run(lambda wide, _: wide.clone()))
        for number, (tensor, right) in enumerate(zip(results, rights, strict=False)):
            if tensor.shape != right.shape or not right.numel():
                continue
            size, error = float(right.abs().max()), float((widened(tensor) - right).abs().max())
            if not error > math.sqrt(unit) * size:  # also where one of them is not finite
                continue
            rounding = unit * size
            for draw in range(_DRAWS):
                others = _floats(run(partial(_disturbed, unit, draw)))
                rounding = max(rounding, float((others[number] - right).abs().max()))
            if math.isfinite(error) and error > _ROUNDED * rounding:
                moved = [_floats(again(draw))[number] for draw in range(2 * _DRAWS)]
                rounding = max(rounding, *(float((widened(one) - widened(tensor)).abs().max()) for one in moved))
            if math.isfinite(error) and error > _ROUNDED * rounding:
                coarsest = max((t.dtype for t in results), key=lambda dtype: torch.finfo(dtype).eps)
                self.off.append(Off(index, error / size if size else math.inf, rounding / size if size else 0.0, coarsest))
                return


def _floats(values: object) -> list[Tensor]:
    return [value for value in tree_leaves(values) if _is_float(value)]


def _is_float(value: object) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()) and value.layout is torch.strided


def _width(dtype: torch.dtype) -> torch.dtype:
    return _WIDE.get(dtype, torch.float64)


def widened(tensor: Tensor) -> Tensor:
    """Its numbers in float64, or complex128; the same memory where it has them already."""
    return tensor.detach().to(_width(tensor.dtype))


def _unit(op: Any, results: Sequence[Tensor]) -> float:
    """By how much a result may be rounded, of its own size."""
    unit = max((torch.finfo(t.dtype).eps / 2 for t in results), default=0.0)
    if any(t.dtype is torch.float32 for t in results) and any(part in op.name for part in _PRODUCTS):
        on_device = any(not t.is_cpu for t in results)  # cuDNN's default is TF32
        return max(unit, _REDUCED[torch.get_float32_matmul_precision()], 2.0**-11 if on_device else 0.0)
    return unit


def _disturbed(unit: float, draw: int, wide: Tensor, _: Tensor) -> Tensor:
    """Each element off by one rounding, upwards or downwards."""
    spread = torch.arange(wide.numel(), dtype=torch.float64, device=wide.device).mul_(_GOLDEN * (draw + 1)).remainder_(1)
    return wide * (1 + unit * (spread.view(wide.shape) - 0.5).sign_())


def in_float64(op: Any, func: Any, args: Any, kwargs: Any, wide: Callable[[Tensor], Tensor]) -> Any:
    """The result of an operator in float64; None where it does not run so.

    Args:
        op: ``op_of(func)``.
        wide: an operand's numbers in float64.
    """

    def as_float64(value: Any) -> Any:
        if _is_float(value):
            return wide(value)
        return _width(value) if isinstance(value, torch.dtype) and (value.is_floating_point or value.is_complex) else value

    given = [False if name == "half_to_float" else tree_map(as_float64, value) for name, value in named_arguments(op, args, {})]
    try:
        return func(*given, **{name: tree_map(as_float64, value) for name, value in kwargs.items()})
    except TooLarge:
        raise
    except ours():
        return None
