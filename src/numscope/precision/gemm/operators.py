"""The GEMMs of converted layers as operators that torch.compile does not look into: what they compute is bitwise the eager result.

A traced call names the layer (by its state's handle, in a tensor, so that layers of one shape share a graph) and the recipe (by its
number). The operator looks up the plan when it runs, so that switches act on compiled models without compiling them again. x and the
weight are kept for backward, as a bare layer keeps them.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from numscope.precision.gemm import products
from numscope.precision.gemm.autocasting import numbered, region
from numscope.precision.gemm.passes import backward_pass, forward_pass, in_autocast_dtype
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.state import LayerState
from numscope.precision.gemm.stepping import live
from numscope.probe.optimizer import is_paused


def traced_product(module: nn.Module, state: LayerState, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What ``product`` does while the call is compiled or traced."""
    number = 0  # its own recipe
    if region.depth:
        number = region.number or (1 if state.recipe.is_high else 0)
        is_high = not region.enabled
    else:
        # Compiled as a bare layer where nothing is quantized now; when the plan changes later, the graph is compiled again.
        is_high = state.recipe is state.in_force and state.plan.high and state.results is None
    if is_high:
        return products.linear(x, weight, bias, state.is_transposed)
    y: Tensor = torch.ops.numscope.fp8_linear(in_autocast_dtype(x), weight, bias, state.tag, number, state.is_transposed, module.training)
    return y


def _found(tag: Tensor, number: int) -> tuple[LayerState, LayerPlan]:
    state = cast(LayerState, live[int(tag)])
    return state, state.plan_by(state.recipe if number == 0 else numbered(number))


@torch.library.custom_op("numscope::fp8_linear", mutates_args=())
def _fp8_linear(x: Tensor, weight: Tensor, bias: Tensor | None, tag: Tensor, number: int, is_transposed: bool, training: bool) -> Tensor:
    state, plan = _found(tag, number)
    return forward_pass(state, plan, x, weight, bias, training and not is_paused()).contiguous()


@_fp8_linear.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, tag: Tensor, number: int, is_transposed: bool, training: bool) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[1 if is_transposed else 0])


@torch.library.custom_op("numscope::fp8_linear_backward", mutates_args=())
def _fp8_linear_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, tag: Tensor, number: int, training: bool, wanted: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    state, plan = _found(tag, number)
    of_x, of_weight, of_bias = wanted
    gradients = backward_pass(state, plan, gradient, x, weight, bias, training and not is_paused(), (of_x, of_weight, of_bias))
    dx, dw, db = (gradient.new_empty(0) if g is None else g.contiguous() for g in gradients)
    return dx, dw, db


@_fp8_linear_backward.register_fake
def _(
    gradient: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, tag: Tensor, number: int, training: bool, wanted: list[bool]
) -> tuple[Tensor, ...]:
    pairs = zip((x, weight, bias), wanted, strict=True)
    return tuple(like.new_empty(like.shape) if is_wanted and like is not None else gradient.new_empty(0) for like, is_wanted in pairs)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, tag, ctx.number, _, ctx.training = inputs
    ctx.save_for_backward(x, weight, bias, tag)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias, tag = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[:3])
    gradients = torch.ops.numscope.fp8_linear_backward(gradient, x, weight, bias, tag, ctx.number, ctx.training, wanted)
    return *(g if is_wanted else None for g, is_wanted in zip(gradients, wanted, strict=True)), None, None, None, None


_fp8_linear.register_autograd(_backward, setup_context=_keep)
