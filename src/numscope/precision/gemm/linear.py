"""The product of a converted layer in place of ``F.linear``: ``product`` chooses how a call is computed."""

from __future__ import annotations

import weakref
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numscope.precision.gemm import products
from numscope.precision.gemm.autocasting import numbered, region
from numscope.precision.gemm.layer_state import ATTRIBUTE, LayerState, live
from numscope.precision.gemm.passes import backward_pass, forward_pass, in_autocast_dtype
from numscope.precision.gemm.plan import LayerPlan
from numscope.probe.optimizer import is_paused
from numscope.records.errors import UsageError


def product(module: nn.Module, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x Wᵀ + b`` by the plan of a converted module; ``F.linear`` for any other module. The shapes are those of ``LinearCall``.

    Raises: UsageError: for a call within a transform of ``torch.func``, and for operands that are not plain tensors.

    *Cost:* keeps x and the weight for backward, as ``F.linear`` does, and nothing else.
    """
    state: LayerState | None = module.__dict__.get(ATTRIBUTE)
    if state is None:
        return F.linear(x, weight, bias)
    if torch.compiler.is_compiling() or _is_tracing():
        return traced_product(module, state, x, weight, bias)
    if state.module is None:  # the state of a copy
        state.module = weakref.ref(module)
    plan = state.current_plan()
    if plan.high and (state.results is None or (region.depth and not region.enabled)):
        return products.linear(x, weight, bias, state.is_transposed)
    if x.is_nested and getattr(x, "_ragged_idx", 1) == 1:
        return _of_nested(module, x, weight, bias)
    if type(x) not in _PLAIN or type(weight) not in _PLAIN or x.is_meta:
        return _without_data(state, x, weight, bias)
    if _is_transformed():
        raise UsageError(
            f"{state.name or 'layer'}: got a call within a transform of torch.func (grad, vmap, jvp), expected none: they can't see into "
            "fp8 GEMMs. Use precision.autocast(enabled=False) there, or revert(model) first."
        )
    x = in_autocast_dtype(x)
    if x.dtype is not weight.dtype and not torch.is_autocast_enabled(x.device.type):
        return products.linear(x, weight, bias, state.is_transposed)  # raises torch's own error
    counts = module.training and not is_paused()
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)):
        y: Tensor = _Product.apply(x, weight, bias, state, plan, counts)  # type: ignore[no-untyped-call]
        return y
    return forward_pass(state, plan, x, weight, bias, counts)


_is_tracing: Final = torch._C._is_tracing  # torch.jit would record the kernels' results as constants
_is_transformed: Final = torch._C._are_functorch_transforms_active
_PLAIN: Final = frozenset({Tensor, nn.Parameter, nn.Buffer})


class _Product(torch.autograd.Function):
    """The three GEMMs as one node. It keeps what ``F.linear`` keeps, and quantizes it again in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, state: LayerState, plan: LayerPlan, counts: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.given = (state, plan, counts, bias)
        return forward_pass(state, plan, x, weight, bias, counts)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        state, plan, counts, bias = ctx.given
        x, weight = ctx.saved_tensors
        gradients = backward_pass(state, plan, gradient, x, weight, bias, counts and not is_paused(), ctx.needs_input_grad[:3])
        return *gradients, None, None, None


def _of_nested(module: nn.Module, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The rows of all sequences as one matrix, so that they share a scale as those of a padded batch do."""
    if x.layout is torch.jagged:
        y: Tensor = torch.nested.nested_tensor_from_jagged(product(module, x.values(), weight, bias), x.offsets(), x.lengths())  # type: ignore[attr-defined]
        return y
    parts = x.unbind()
    rows = torch.split(
        product(module, torch.cat([part.flatten(0, -2) for part in parts]), weight, bias), [p.shape[:-1].numel() for p in parts]
    )
    return torch.nested.as_nested_tensor([y.view(*part.shape[:-1], -1) for y, part in zip(rows, parts, strict=True)])


def _without_data(state: LayerState, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Tensors without data only compute shapes. Others, whose data is elsewhere, can't be quantized here."""
    from torch._subclasses.fake_tensor import FakeTensor

    if x.is_meta or isinstance(x, FakeTensor) or isinstance(weight, FakeTensor):
        return products.linear(x, weight, bias, state.is_transposed)
    odd = next(t for t in (x, weight) if type(t) not in _PLAIN)
    raise UsageError(
        f"{state.name or 'layer'}: got a {type(odd).__name__}, expected a plain tensor: fp8 GEMMs take whole operands. "
        "Leave out layers whose weights are split by tensor parallelism with convert(layers=…) or disable_fp8_layer."
    )


def traced_product(module: nn.Module, state: LayerState, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``product`` while the call is compiled or traced: an operator that torch.compile does not look into, bitwise the eager result.

    It names the layer (by its state's handle, in a tensor, so that layers of one shape share a graph) and the recipe (by its number). The
    operator looks up the plan when it runs, so that switches act on compiled models without compiling them again. x and the weight are
    kept for backward, as a bare layer keeps them.
    """
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
    state = live[int(tag)]
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
