"""Casting the operands of a layer's GEMMs: by which scale, into which counts, and only once while a weight stays the same."""

from __future__ import annotations

import torch
from torch import Tensor

from numscope.distributed.agree import among
from numscope.precision.casting.cast import Cast, cast, empty_cells
from numscope.precision.casting.decoding import values_of
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.plan import COLUMNWISE
from numscope.precision.gemm.recipes import CurrentScaling
from numscope.precision.gemm.state import LayerState
from numscope.precision.gemm.weights import KeptWeight, can_be_kept, is_same_both_ways

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
    columnwise = ((gemm, "weight") in COLUMNWISE) != state.is_transposed and not is_same_both_ways(how)
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
    return Cast(values_of(made, weight, dtype) if values is None else values, None, made.scale_inv, how, columnwise)
