"""Forward and backward of a converted layer: which GEMMs run, with which operands, and by which backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor

from numscope.distributed.agree import among
from numscope.precision.casting.cast import Cast, cast, empty_cells, values_of
from numscope.precision.casting.scaling import How
from numscope.precision.gemm import products
from numscope.precision.gemm.layer_state import KeptWeight, LayerState, can_be_kept
from numscope.precision.gemm.plan import COLUMNWISE, LayerPlan
from numscope.precision.gemm.products import LinearCall
from numscope.precision.gemm.recipes import CurrentScaling

_num_dispatch_modes = torch._C._len_torch_dispatch_stack


def cast_operand(
    state: LayerState,
    gemms: tuple[str, ...],
    operand: str,
    x: Tensor,
    how: How,
    *,
    columnwise: bool,
    values: bool,
    codes: bool,
    counts: bool,
    records: bool,
) -> Cast:
    """Cast an operand as its GEMM takes it.

    Args:
        gemms: the GEMMs that take this cast: one, or two that take the same.
        counts: whether ``cells`` and ``observer`` get it: not in evaluation, a replay, or a checkpoint's second pass.
        records: whether its amax joins the history of delayed scaling.
    """
    scale = amax = group = None
    recipe = state.in_force
    if how.delayed:
        history = state.history(operand, how, x.device)
        scale = history.scale
        if records:
            amax = history.amax
            state.cohort.has_run = True
    elif operand != "weight" and isinstance(recipe, CurrentScaling) and recipe.reduce_amax:
        group = among(recipe.amax_group)
    into_all = [state.cells.get((gemm, operand, how.family)) for gemm in gemms] if counts and state.cells else []
    counted = [into for into in into_all if into is not None]
    cells = None if not counted else counted[0] if len(counted) == 1 else empty_cells(x.device)
    made = cast(x, how, scale=scale, columnwise=columnwise, values=values, codes=codes, cells=cells, amax=amax, group=group)
    if cells is not None and len(counted) > 1:
        for into in counted:
            into[:4] += cells[:4]
            torch.maximum(into[4:], cells[4:], out=into[4:])
    if state.observer is not None and counts:
        for gemm in gemms:
            state.observer(gemm, operand, x, made)
    return made


def cast_weight(state: LayerState, gemm: str, weight: Tensor, how: How, dtype: torch.dtype, *, codes: bool, counts: bool) -> Cast:
    """Cast a layer's weight for a GEMM, or take the codes that were kept of it.

    Args:
        dtype: of the values.
        codes: whether codes alone are wanted; else values alone.
        counts: as for ``cast_operand``; amaxes are recorded then too.
    """
    columnwise = ((gemm, "weight") in COLUMNWISE) != state.is_transposed and not how.is_same_both_ways
    # A dispatch mode (a replay's op probe, selective checkpointing) has to see the same operations each time, from the weight on.
    kept = None if _num_dispatch_modes() else state.kept_weights.get((id(how), columnwise))
    cells = state.cells.get((gemm, "weight", how.family)) if counts and state.cells is not None else None
    counted: dict[str, Tensor] = {}
    made: Cast | None = None
    values: Tensor | None = None
    if kept is not None and kept.is_of(weight):
        counted = kept.counted
        is_recorded = kept.recorded or not (counts and how.delayed)
        is_observed = counts and state.observer is not None
        if is_recorded and not is_observed and (cells is None or counted.get(gemm) is cells):
            made = kept.cast
    if made is None:
        is_in_dtype = weight.dtype is dtype
        keeps = can_be_kept(weight, None if state.module is None else state.module())
        made = cast_operand(
            state,
            (gemm,),
            "weight",
            weight,
            how,
            columnwise=columnwise,
            values=is_in_dtype and not codes,
            codes=codes or keeps or not is_in_dtype,
            counts=counts,
            records=counts,
        )
        values, made.values = made.values, None
        if keeps:
            counted = counted if cells is None else {**counted, gemm: cells}
            state.kept_weights[id(how), columnwise] = KeptWeight(weight, made, counts, counted)
    if codes:
        return made
    return Cast(values_of(made, weight.dtype, dtype) if values is None else values, None, made.scale_inv, how, columnwise)


class _GemmKind(NamedTuple):
    """One of the three GEMMs: its operands, the name of its result, and the function that multiplies values."""

    name: str
    operands: tuple[str, str]
    result: str
    of_values: Callable[[Tensor, Tensor, LinearCall, bool], Tensor]


_FPROP: Final = _GemmKind("fprop", ("activation", "weight"), "output", products.fprop)
_DGRAD: Final = _GemmKind("dgrad", ("gradient", "weight"), "dgrad", products.dgrad)
_WGRAD: Final = _GemmKind("wgrad", ("gradient", "activation"), "wgrad", products.wgrad)


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
        self, state: LayerState, plan: LayerPlan, call: LinearCall, tensors: dict[str, Tensor], gemms: tuple[_GemmKind, ...], counts: bool
    ) -> None:
        self._state, self._plan, self._call, self._tensors, self._counts = state, plan, call, tensors, counts
        self._takes_codes = {gemm.name: self._decided(gemm) for gemm in gemms}
        self._shared: dict[str, Cast] = {}  # casts that two GEMMs take, by operand

    def run(self, gemm: _GemmKind) -> Tensor:
        first, second = self._operand(gemm.name, gemm.operands[0]), self._operand(gemm.name, gemm.operands[1])
        if self._takes_codes[gemm.name]:
            y = products.of_codes(gemm.name, first, second, self._call)  # type: ignore[arg-type]  # casts: an fp8 GEMM has no operand in high precision
        else:
            is_high = isinstance(first, Tensor) and isinstance(second, Tensor)
            y = gemm.of_values(_values(first), _values(second), self._call, is_high)
        how = None if self._state.results is None else self._state.results.get(gemm.result)
        return y if how is None else _values(cast(y, how))

    def _decided(self, gemm: _GemmKind) -> bool:
        first, second = gemm.operands
        hows = self._plan[gemm.name, first], self._plan[gemm.name, second]
        return products.takes_codes(self._state, gemm.name, *hows, self._tensors[first], self._tensors[second])

    def _operand(self, gemm: str, operand: str) -> Cast | Tensor:
        """An operand by the plan: cast, or the tensor itself in the dtype of the computation."""
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
