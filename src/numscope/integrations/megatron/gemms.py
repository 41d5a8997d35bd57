"""Low precision in Megatron's column- and row-parallel layers: their GEMMs go through ours, their communication stays Megatron's.

Megatron's own autograd function overlaps the all-reduce of the input's gradient with the weight's GEMM. Here they come one after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from megatron.core import parallel_state
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import copy_to_tensor_model_parallel_region, gather_from_sequence_parallel_region
from torch import Tensor, nn

from numscope.precision.gemm import conversion
from numscope.precision.gemm.layer_state import ATTRIBUTE, Backend, state_of
from numscope.precision.gemm.linear import product
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import Recipe, recipe_of
from numscope.records.errors import UsageError

Chunks = nn.Module | Sequence[nn.Module]


class _ParallelLinear:
    """Put before a prepared layer's own class. Without a recipe's state, or with all of it high, the layer computes as before."""

    _numscope_gemm = True  # ``convert`` takes it as it is
    _numscope_was: type[nn.Module]

    def _forward_impl(self, input: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        state = state_of(self)  # type: ignore[arg-type]
        if state is None or (state.current_plan().high and state.results is None):
            y: Tensor = super()._forward_impl(input, weight, *args, **kwargs)  # type: ignore[misc]
            return y
        if kwargs.get("gradient_accumulation_fusion") or kwargs.get("grad_output_buffer") is not None:
            what = "gradient_accumulation_fusion" if kwargs.get("gradient_accumulation_fusion") else "defer_embedding_wgrad_compute"
            raise UsageError(
                f"{state.name}: got {what}, expected a layer whose weight's gradient is a GEMM of its own. Set {what}=False in "
                "the model's configuration, or leave the layer out with layers=…."
            )
        if kwargs.get("sequence_parallel"):
            input = gather_from_sequence_parallel_region(input, tensor_parallel_output_grad=True, group=kwargs.get("tp_group"))
        elif kwargs.get("allreduce_dgrad"):
            input = copy_to_tensor_model_parallel_region(input, group=kwargs.get("tp_group"))
        return product(self, input, weight, kwargs.get("bias"))  # type: ignore[arg-type]


class _ColumnParallel(_ParallelLinear, ColumnParallelLinear):  # type: ignore[misc]  # megatron is not read by the type checker
    _numscope_was = ColumnParallelLinear


class _RowParallel(_ParallelLinear, RowParallelLinear):  # type: ignore[misc]
    _numscope_was = RowParallelLinear


_ColumnParallel.__name__, _RowParallel.__name__ = "ColumnParallelLinear", "RowParallelLinear"  # as logs and reports know them
_PREPARED: dict[type[nn.Module], type[nn.Module]] = {ColumnParallelLinear: _ColumnParallel, RowParallelLinear: _RowParallel}


def convert(
    model: Chunks, recipe: Recipe | LayerPlan | str | None = None, layers: conversion.Layers = None, backend: Backend = "auto"
) -> Chunks:
    """``numscope.precision.convert`` for Megatron's models: also takes column- and row-parallel layers.

    Where a recipe shares amaxes between ranks and names no group, they are the ranks of a pipeline stage. Delayed scaling does: split over
    ranks or not, a tensor is quantized alike. Current scaling takes each part of a weight by its own amax.

    Args:
        model: a chunk or a list of them, wrapped or bare; it is returned.
        recipe, layers, backend: as of ``numscope.precision.convert``.

    Raises:
        UsageError: of arguments, as there; from a layer's first call, where Megatron computes its weight's gradient in a kernel of its own.
    """
    recipe = recipe_of(recipe, "convert: recipe")
    if getattr(recipe, "amax_group", 0) is None and parallel_state.is_initialized():
        group = parallel_state.get_amax_reduction_group(with_context_parallel=True)
        recipe = dataclasses.replace(recipe, amax_group=group)  # type: ignore[type-var]
    for chunk in _chunks(model):
        prepare(chunk)
        conversion.convert(chunk, recipe, layers, backend)
    return model


def revert(model: Chunks) -> Chunks:
    """Make converted layers what they were. Takes and returns the model as ``convert`` does."""
    for chunk in _chunks(model):
        conversion.revert(chunk)
        unprepare(list(chunk.modules()))
    return model


def prepare(model: nn.Module) -> list[nn.Module]:
    """Make Megatron's layers take a recipe's state; until they get one they compute as they did. Returns: those not prepared before."""
    found = [module for module in model.modules() if type(module) in _PREPARED]
    for module in found:
        module.__class__ = _PREPARED[type(module)]
    return found


def unprepare(modules: Sequence[nn.Module]) -> None:
    """Undo ``prepare``; a layer's state goes with it."""
    for module in modules:
        if isinstance(module, _ParallelLinear):
            module.__dict__.pop(ATTRIBUTE, None)
            module.__class__ = module._numscope_was  # type: ignore[assignment]


def _chunks(model: Chunks) -> Sequence[nn.Module]:
    return [model] if isinstance(model, nn.Module) else model
