"""A linear layer whose three GEMMs each run as a plan says, forward and backward; and the classes that converted layers get."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from numscope.precision.gemm import backends, products
from numscope.precision.gemm.autocasting import region
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.state import ATTRIBUTE, LayerState
from numscope.probe.optimizer import is_paused
from numscope.records.errors import UsageError

__all__ = ["Converted", "class_for", "origin_of", "product"]


def product(module: nn.Module, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x Wᵀ + b`` as a converted module's plan says; of another module, ``F.linear``.

    Args:
        module: that the state is on.
        x: [..., in_features]
        weight: [out_features, in_features]; of a layer like transformers' ``Conv1D`` [in_features, out_features].
        bias: [out_features]

    *Cost:* x and the weight are kept for backward, as ``F.linear`` does; nothing else is.
    """
    state: LayerState | None = module.__dict__.get(ATTRIBUTE)
    if state is None:
        return F.linear(x, weight, bias)
    if torch.compiler.is_compiling() or _is_tracing():
        from numscope.precision.gemm.operators import traced_product

        return traced_product(module, state, x, weight, bias)
    if state.module is None:  # a copy's
        state.module = weakref.ref(module)
    plan = state.current_plan()
    if plan.high and (state.results is None or (region.depth and not region.enabled)):
        return products.fprop(x, weight, bias, True) if state.is_transposed else F.linear(x, weight, bias)
    if x.is_nested and getattr(x, "_ragged_idx", 1) == 1:
        return _of_nested(module, x, weight, bias)
    if type(x) not in _PLAIN or type(weight) not in _PLAIN or x.is_meta:
        return _without_data(state, x, weight, bias)
    if _is_transformed():
        raise UsageError(
            f"{state.name or 'layer'}: got a call within a transform of torch.func (grad, vmap, jvp), expected none: they can't see into "
            "fp8 GEMMs. Take precision.autocast(enabled=False) there, or revert(model) first."
        )
    x = in_autocast_dtype(x)
    if x.dtype is not weight.dtype and not torch.is_autocast_enabled(x.device.type):
        return products.fprop(x, weight, bias, state.is_transposed)  # torch's own refusal
    counts = module.training and not is_paused()
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)):
        y: Tensor = _Product.apply(x, weight, bias, state, plan, counts)  # type: ignore[no-untyped-call]
        return y
    return forward_gemm(state, plan, x, weight, bias, counts)


torch.fx.wrap("product")  # symbolic tracing keeps the call, as it keeps that of a bare layer
_is_tracing: Final = torch._C._is_tracing  # by torch.jit: it would take what the kernels write for constants
_is_transformed: Final = torch._C._are_functorch_transforms_active
_PLAIN: Final = frozenset({Tensor, nn.Parameter, nn.Buffer})


def in_autocast_dtype(x: Tensor) -> Tensor:
    """The input as autocast has ``F.linear`` take it.

    Args:
        x: any.
    """
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype is not torch.float64:
        return x.to(torch.get_autocast_dtype(kind))
    return x


def forward_gemm(state: LayerState, plan: LayerPlan, x: Tensor, weight: Tensor, bias: Tensor | None, counts: bool) -> Tensor:
    """fprop.

    Args:
        state: the layer's.
        plan: what it does now.
        x, weight, bias: as ``product`` has them; x in the dtype to compute in.
        counts: the pass is a training step's: amaxes join the histories.
    """
    dtype = x.dtype
    counts = counts and torch._C._current_graph_task_id() == -1  # within backward it is a checkpoint's second pass
    x_how, weight_how = plan.fprop_activation, plan.fprop_weight
    if bias is not None and bias.dtype is not dtype:
        bias = bias.to(dtype)
    is_real = backends.is_real(state, "fprop", x_how, weight_how, x, weight)
    if x_how is not None:
        made = state.quantize("fprop", "activation", x, x_how, values=not is_real, codes=is_real, record=counts, counts=counts)
    if weight_how is not None:
        held = state.weight(
            "fprop", weight, weight_how, columnwise=state.is_transposed, dtype=dtype, codes=is_real, record=counts, counts=counts
        )
    if is_real:
        y = backends.fprop(made, held, bias, dtype, state.is_transposed)
    else:
        y = products.fprop(
            x if x_how is None else _values(made),
            weight.to(dtype) if weight_how is None else _values(held),
            bias,
            state.is_transposed,
            weight.requires_grad and x_how is weight_how is None,
        )
    return y if state.results is None else _as_result(state, "output", y)


def backward_gemms(
    state: LayerState,
    plan: LayerPlan,
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    counts: bool,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """dgrad, wgrad and the bias's gradient, those that are wanted.

    Args:
        state, plan, x, weight, bias, counts: as ``forward_gemm`` had them.
        gradient: of the output.
        wanted: for each.

    Returns:
        Gradients in the dtypes of x, weight and bias.
    """
    dtype = x.dtype
    is_transposed = state.is_transposed
    of_x, of_weight, of_bias = wanted
    dgrad_how = plan.dgrad_gradient if of_x else None
    wgrad_how = plan.wgrad_gradient if of_weight else None
    real_dgrad = of_x and backends.is_real(state, "dgrad", dgrad_how, plan.dgrad_weight, gradient, weight)
    real_wgrad = of_weight and backends.is_real(state, "wgrad", wgrad_how, plan.wgrad_activation, gradient, x)
    dx = dw = db = None
    shared = dgrad_how is not None and dgrad_how is wgrad_how and dgrad_how.scaling.kind == "tensor"
    if dgrad_how is not None:
        made = state.quantize(
            "dgrad",
            "gradient",
            gradient,
            dgrad_how,
            values=not real_dgrad or (shared and not real_wgrad),
            codes=real_dgrad or (shared and real_wgrad),
            record=counts,
            also="wgrad" if shared else None,
            counts=counts,
        )
    if of_x:
        weight_how = plan.dgrad_weight
        if weight_how is not None:
            held = state.weight(
                "dgrad", weight, weight_how, columnwise=not is_transposed, dtype=dtype, codes=real_dgrad, record=counts, counts=counts
            )
        if real_dgrad:
            dx = backends.dgrad(made, held, x, dtype, is_transposed)
        else:
            dx = products.dgrad(
                gradient if dgrad_how is None else _values(made),
                weight.to(dtype) if weight_how is None else _values(held),
                x,
                is_transposed,
                bias,
                dgrad_how is weight_how is None,
            )
        if state.results is not None:
            dx = _as_result(state, "dgrad", dx)
    if of_weight:
        if wgrad_how is not None and not shared:
            made = state.quantize(
                "wgrad", "gradient", gradient, wgrad_how,
                columnwise=True, values=not real_wgrad, codes=real_wgrad, record=counts, counts=counts,
            )  # fmt: skip
        x_how = plan.wgrad_activation
        if x_how is not None:
            # Delayed scaling took the amax in forward, where the operand was the same.
            record = counts and x_how is not plan.fprop_activation
            x_made = state.quantize(
                "wgrad", "activation", x, x_how,
                columnwise=True, values=not real_wgrad, codes=real_wgrad, record=record, counts=counts,
            )  # fmt: skip
        if real_wgrad:
            dw = backends.wgrad(made, x_made, dtype, is_transposed)
        else:
            dw = products.wgrad(
                gradient if wgrad_how is None else _values(made),
                x if x_how is None else _values(x_made),
                weight,
                is_transposed,
                bias,
                wgrad_how is x_how is None,
            )
        if state.results is not None:
            dw = _as_result(state, "wgrad", dw)
        if dw.dtype is not weight.dtype:
            dw = dw.to(weight.dtype)
    if of_bias and bias is not None:
        db = products.bias_gradient(gradient, bias, x)
        if db.dtype is not bias.dtype:
            db = db.to(bias.dtype)
    return dx, dw, db


class _Product(torch.autograd.Function):
    """The three GEMMs as one node. It keeps what ``F.linear`` keeps, and quantizes it again in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, state: LayerState, plan: LayerPlan, counts: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.said = (state, plan, counts, bias)
        return forward_gemm(state, plan, x, weight, bias, counts)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        state, plan, counts, bias = ctx.said
        x, weight = ctx.saved_tensors
        got = backward_gemms(state, plan, gradient, x, weight, bias, counts and not is_paused(), ctx.needs_input_grad[:3])
        return *got, None, None, None


def _values(made: Any) -> Tensor:
    values: Tensor = made.values
    return values


def _as_result(state: LayerState, name: str, y: Tensor) -> Tensor:
    """What a GEMM gave, cast to a format and back where ``fake_quant`` asks for it."""
    from numscope.precision.casting.cast import cast

    how = None if state.results is None else state.results.get(name)
    return y if how is None else _values(cast(y, how))


def _of_nested(module: nn.Module, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The rows of all sequences as one matrix, so that one scale is theirs as it is a padded batch's."""
    if x.layout is torch.jagged:
        y: Tensor = torch.nested.nested_tensor_from_jagged(product(module, x.values(), weight, bias), x.offsets(), x.lengths())  # type: ignore[attr-defined]
        return y
    parts = x.unbind()
    rows = torch.split(
        product(module, torch.cat([part.flatten(0, -2) for part in parts]), weight, bias), [p.shape[:-1].numel() for p in parts]
    )
    return torch.nested.as_nested_tensor([y.view(*part.shape[:-1], -1) for y, part in zip(rows, parts, strict=True)])


def _without_data(state: LayerState, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Tensors without data compute shapes; others, whose data is elsewhere, can't be quantized here."""
    from torch._subclasses.fake_tensor import FakeTensor

    if x.is_meta or isinstance(x, FakeTensor) or isinstance(weight, FakeTensor):
        return products.fprop(x, weight, bias, True) if state.is_transposed else F.linear(x, weight, bias)
    odd = next(t for t in (x, weight) if type(t) not in _PLAIN)
    raise UsageError(
        f"{state.name or 'layer'}: got a {type(odd).__name__}, expected a plain tensor: fp8 GEMMs take whole operands. "
        "Leave layers whose weights tensor parallelism splits out with convert(layers=…), or disable_fp8_layer."
    )


# Classes ------------------------------------------------------------------------------------------------------------------


class Converted:
    """What a converted layer's class has before its own; the class is made once for each kind of layer."""

    _numscope_origin: type[nn.Module]

    def forward(self, x: Tensor) -> Tensor:
        if ATTRIBUTE not in self.__dict__:  # reverted under a class that something else made of this one
            y: Tensor = super().forward(x)  # type: ignore[misc]
            return y
        return product(self, x, self.weight, self.bias)  # type: ignore[attr-defined, arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        held: LayerState | None = self.__dict__.get(ATTRIBUTE)
        if held is not None:
            held.module = weakref.ref(self)  # type: ignore[arg-type]

    def __reduce_ex__(self, protocol: Any) -> Any:
        if type(self).__dict__.get("_numscope_origin") is None:  # as above: that class knows how, or does not
            return super().__reduce_ex__(protocol)
        return _restored, (self._numscope_origin,), super().__reduce_ex__(protocol)[2]


_classes: dict[type[nn.Module], type[nn.Module]] = {}


def class_for(origin: type[nn.Module]) -> type[nn.Module]:
    """The class of converted layers that were of this one.

    Args:
        origin: ``nn.Linear``, a subclass with the same forward, or transformers' ``Conv1D``.
    """
    made = _classes.get(origin)
    if made is None:
        names = {"_numscope_origin": origin, "__module__": __name__, "__qualname__": f"Converted{origin.__qualname__}"}
        made = _classes[origin] = type(origin.__name__, (Converted, origin), names)
    return made


def origin_of(kind: type[nn.Module]) -> type[nn.Module] | None:
    """What a converted layer's class was made from; None for other classes.

    Args:
        kind: any.
    """
    origin: type[nn.Module] | None = kind.__dict__.get("_numscope_origin")
    return origin


def _restored(origin: type[nn.Module]) -> nn.Module:
    """An empty converted layer, for pickle and copy."""
    make: Callable[[type[nn.Module]], nn.Module] = nn.Module.__new__
    return make(class_for(origin))
