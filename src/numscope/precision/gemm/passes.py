"""Forward and backward of a converted layer: which GEMMs run, with which operands, and by which backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor

from numscope.precision.casting.cast import Cast, cast
from numscope.precision.gemm import backends, products
from numscope.precision.gemm.operands import cast_operand, cast_weight
from numscope.precision.gemm.plan import COLUMNWISE, LayerPlan
from numscope.precision.gemm.products import LinearCall
from numscope.precision.gemm.state import LayerState


class _Gemm(NamedTuple):
    """One of the three GEMMs: its operands, the name of its result, and the functions that multiply values and codes."""

    name: str
    operands: tuple[str, str]
    result: str
    values: Callable[[Tensor, Tensor, LinearCall, bool], Tensor]
    codes: Callable[[Cast, Cast, LinearCall], Tensor]


_FPROP: Final = _Gemm("fprop", ("activation", "weight"), "output", products.fprop, backends.fprop)
_DGRAD: Final = _Gemm("dgrad", ("gradient", "weight"), "dgrad", products.dgrad, backends.dgrad)
_WGRAD: Final = _Gemm("wgrad", ("gradient", "activation"), "wgrad", products.wgrad, backends.wgrad)


def in_autocast_dtype(x: Tensor) -> Tensor:
    """The input as ``F.linear`` takes it under torch's autocast."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype is not torch.float64:
        return x.to(torch.get_autocast_dtype(kind))
    return x


def forward_pass(state: LayerState, plan: LayerPlan, x: Tensor, weight: Tensor, bias: Tensor | None, counts: bool) -> Tensor:
    """A layer's output under a plan, in x's dtype. ``counts``: it is part of training, so amaxes are recorded and casts counted."""
    counts = counts and torch._C._current_graph_task_id() == -1  # within backward, this is a checkpoint's second pass
    tensors = {"activation": x, "weight": weight}
    return _Pass(state, plan, LinearCall(x, weight, bias, state.is_transposed), tensors, (_FPROP,), counts).run(_FPROP)


def backward_pass(
    state: LayerState,
    plan: LayerPlan,
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    counts: bool,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of x, weight and bias, each in its tensor's dtype, or None if it is not wanted; arguments as for ``forward_pass``."""
    of_x, of_weight, of_bias = wanted
    gemms = tuple(gemm for gemm, is_wanted in ((_DGRAD, of_x), (_WGRAD, of_weight)) if is_wanted)
    tensors = {"gradient": gradient, "activation": x, "weight": weight}
    run = _Pass(state, plan, LinearCall(x, weight, bias, state.is_transposed), tensors, gemms, counts).run
    dx = run(_DGRAD) if of_x else None
    dw = run(_WGRAD).to(weight.dtype) if of_weight else None
    db = products.bias_gradient(gradient, bias, x) if of_bias and bias is not None else None
    return dx, dw, db


class _Pass:
    """One forward or backward of one layer: some of its GEMMs, on tensors by operand."""

    def __init__(
        self, state: LayerState, plan: LayerPlan, call: LinearCall, tensors: dict[str, Tensor], gemms: tuple[_Gemm, ...], counts: bool
    ) -> None:
        self._state, self._plan, self._call, self._tensors, self._counts = state, plan, call, tensors, counts
        self._takes_codes = {gemm.name: self._decided(gemm) for gemm in gemms}
        self._shared: dict[str, Cast] = {}  # casts that two GEMMs take, by operand

    def run(self, gemm: _Gemm) -> Tensor:
        """One GEMM's result."""
        first, second = self._operand(gemm.name, gemm.operands[0]), self._operand(gemm.name, gemm.operands[1])
        if self._takes_codes[gemm.name]:
            y = gemm.codes(first, second, self._call)  # type: ignore[arg-type]  # casts: an fp8 GEMM has no operand in high precision
        else:
            is_high = isinstance(first, Tensor) and isinstance(second, Tensor)
            y = gemm.values(_values(first), _values(second), self._call, is_high)
        how = None if self._state.results is None else self._state.results.get(gemm.result)
        return y if how is None else _values(cast(y, how))

    def _decided(self, gemm: _Gemm) -> bool:
        first, second = gemm.operands
        hows = self._plan[gemm.name, first], self._plan[gemm.name, second]
        return backends.takes_codes(self._state, gemm.name, *hows, self._tensors[first], self._tensors[second])

    def _operand(self, gemm: str, operand: str) -> Cast | Tensor:
        """An operand as the plan has it: cast, or the tensor itself in the dtype to compute in."""
        state, plan, tensor = self._state, self._plan, self._tensors[operand]
        how = plan[gemm, operand]
        if how is None:
            return tensor.to(self._call.x.dtype) if operand == "weight" else tensor
        if operand == "weight":
            return cast_weight(state, gemm, tensor, how, self._call.x.dtype, codes=self._takes_codes[gemm], counts=self._counts)
        if operand in self._shared:
            return self._shared[operand]
        # dgrad and wgrad take the gradient in different directions, which makes no difference to one scale for the whole tensor.
        is_shared = operand == "gradient" and how.scaling.kind == "tensor" and plan["dgrad", operand] is plan["wgrad", operand]
        takers = tuple(self._takes_codes) if is_shared else (gemm,)
        forms = {self._takes_codes[taker] for taker in takers}
        made = cast_operand(
            state,
            takers,
            operand,
            tensor,
            how,
            columnwise=(gemm, operand) in COLUMNWISE,
            values=False in forms,
            codes=True in forms,
            counts=self._counts,
            records=self._counts and (gemm != "wgrad" or operand != "activation" or how is not plan["fprop", operand]),  # once a call
        )
        if len(takers) > 1:
            self._shared[operand] = made
        return made


def _values(operand: Cast | Tensor) -> Tensor:
    values = operand.values if isinstance(operand, Cast) else operand
    assert values is not None
    return values
