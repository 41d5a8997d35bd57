"""The three GEMMs of a linear layer by either backend, on values and on codes.

``emulate`` gives dequantized operands to a high-precision GEMM, in torch's own calls and in the memory layouts that autograd uses: bitwise
what autograd computes. ``scaled_mm`` gives codes to an fp8 GEMM.

Both take the same quantized operands. The emulation rounds a dequantized operand once to the dtype of the computation, and products add
up in that GEMM's order. An fp8 GEMM multiplies codes exactly, adds up in float32 in its own order, and rounds once. With K products of
magnitude at most ``a b``, the two results differ by at most ``K a b (K 2^-23 + 3 u)``, where u is the unit roundoff of the dtype of the
computation: 2^-24 in float32, 2^-8 in bfloat16.

*Source:* ``addmm`` and ``mm`` in torch's ``derivatives.yaml``, ``mm_mat1_backward`` and ``mm_mat2_backward`` in its
``FunctionsManual.cpp``.
"""

from __future__ import annotations

import functools
import logging
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from numscope.precision.casting.cast import Cast
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.layer_state import LayerState


class LinearCall(NamedTuple):
    """The arguments of a call of a linear layer."""

    x: Tensor  # [..., in_features]
    weight: Tensor  # [out_features, in_features]; transposed: [in_features, out_features]
    bias: Tensor | None  # [out_features]
    is_transposed: bool  # whether the weight is stored as transformers' ``Conv1D`` stores it


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, is_transposed: bool) -> Tensor:
    """``x Wᵀ + b`` as torch computes it; the arguments are those of ``LinearCall``."""
    if not is_transposed:
        return F.linear(x, weight, bias)
    x2 = x.view(-1, x.shape[-1])
    y = x2.mm(weight) if bias is None else torch.addmm(bias, x2, weight)
    return y.view(*x.shape[:-1], weight.shape[1])


def fprop(x: Tensor, weight: Tensor, call: LinearCall, is_high: bool) -> Tensor:
    """``x Wᵀ + b`` from a layer's operands, quantized or not. If ``is_high``, no operand is quantized, and the result must equal torch's
    bitwise."""
    bias = call.bias if call.bias is None else call.bias.to(x.dtype)
    if is_high and not call.is_transposed and call.weight.requires_grad and not _is_plain(x):
        # This runs without grad mode, and how torch batches such an input depends on whether the weight wants a gradient.
        with torch.enable_grad():
            return F.linear(x.detach(), weight.detach().requires_grad_(), bias).detach()
    return linear(x, weight, bias, call.is_transposed)


def dgrad(gradient: Tensor, weight: Tensor, call: LinearCall, is_high: bool) -> Tensor:
    """``dy W``, in the shape and layout of the input; arguments as for ``fprop``."""
    x = call.x
    if is_high and not call.is_transposed and not _is_plain(x):
        return _by_autograd(call, gradient, of_input=True)
    g2, x2 = flat(gradient), flat(x)
    if x2.stride() == (1, x2.shape[0]):
        dx = (weight if call.is_transposed else weight.t()).mm(g2.t()).t()
    else:
        dx = g2.mm(weight.t() if call.is_transposed else weight)
    return dx if x.dim() == 2 else dx.reshape(x.shape)


def wgrad(gradient: Tensor, x: Tensor, call: LinearCall, is_high: bool) -> Tensor:
    """``dyᵀ x``, in the shape and layout of the weight; arguments as for ``fprop``."""
    if is_high and not call.is_transposed and not _is_plain(x):
        return _by_autograd(call, gradient, of_input=False)
    g2, x2 = flat(gradient), flat(x)
    factor = call.weight if call.is_transposed else call.weight.t()  # the second factor of fprop
    dw = g2.t().mm(x2).t() if factor.stride() == (1, factor.shape[0]) else x2.t().mm(g2)
    return dw if call.is_transposed else dw.t()


def bias_gradient(gradient: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """The sum of the output's gradient over all dimensions but the last, in the bias's dtype."""
    return (flat(gradient) if _is_plain(x) else gradient).sum_to_size(bias.shape).to(bias.dtype)


def flat(x: Tensor) -> Tensor:
    """All dimensions but the last as one."""
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def _is_plain(x: Tensor) -> bool:
    """Whether ``F.linear`` takes the input as one matrix in place. Other inputs (1-D, views with gaps) it may batch or copy."""
    return x.dim() == 2 or (x.dim() > 2 and x.is_contiguous())


def _by_autograd(call: LinearCall, gradient: Tensor, *, of_input: bool) -> Tensor:
    """A gradient of ``F.linear``, for inputs where only autograd knows how it batches them. *Cost:* another forward GEMM."""
    dtype = call.x.dtype
    bias = None if call.bias is None else call.bias.detach().to(dtype)
    with torch.enable_grad():
        x = call.x.detach().requires_grad_(of_input or call.x.requires_grad)
        weight = call.weight.detach().to(dtype).requires_grad_(not of_input or call.weight.requires_grad)
        return torch.autograd.grad(F.linear(x, weight, bias), x if of_input else weight, gradient)[0]


log = logging.getLogger("numscope")

_FORMATS = frozenset({"e4m3fn", "e5m2"})
_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
_ALIGNMENT = 16  # the summed dimension and the result's columns are multiples of this, as cuBLAS requires
_CPU_TAKES_ROWS = torch.__version__ >= (2, 13)  # type: ignore[operator]
_CAPABILITY = (8, 9)  # Ada; Hopper is (9, 0)


@functools.cache
def has_fp8_gemm(device: torch.device) -> bool:
    """Whether a device has fp8 GEMMs. The CPU's ``_scaled_mm`` is correct but slow, so it is used only when chosen by name."""
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= _CAPABILITY


def takes_codes(state: LayerState, gemm: str, first: How | None, second: How | None, a: Tensor, b: Tensor) -> bool:
    """Whether a GEMM of the operands a and b runs on codes. If it should and can't, the reason is logged once per layer."""
    backend = state.backend
    if backend == "emulate" or (backend == "auto" and not has_fp8_gemm(a.device)):
        if backend == "auto" and "emulate" not in state.cohort.logged:
            state.cohort.logged.add("emulate")
            log.info("%s, and layers converted with it: fp8 GEMMs are emulated, as %s has none.", state.name or "a layer", _named(a.device))
        return False
    if first is None and second is None:
        return False
    reason = _obstacle(state, gemm, first, second, a, b)
    if not reason:
        if "scaled_mm" not in state.cohort.logged:
            state.cohort.logged.add("scaled_mm")
            log.info("%s, and layers converted with it: fp8 GEMMs run on torch._scaled_mm.", state.name or "a layer")
        return True
    if (gemm, reason) not in state.logged:
        state.logged.add((gemm, reason))
        log.info("%s: %s is emulated: %s.", state.name or "a layer", gemm, reason)
    return False


def _obstacle(state: LayerState, gemm: str, first: How | None, second: How | None, a: Tensor, b: Tensor) -> str:
    """Why a GEMM can't run on codes; empty if it can."""
    if first is None or second is None:
        return "one of its operands is in high precision"
    for how in (first, second):
        if how.format.name not in _FORMATS:
            return f"torch._scaled_mm does not take {how.format.name}"
        if how.scaling.kind == "block":
            return "torch._scaled_mm is not used for blocks"
    if first.scaling.kind != second.scaling.kind:
        return "its operands are scaled in different ways"
    if a.dtype not in _DTYPES:
        return f"torch._scaled_mm does not give {str(a.dtype).removeprefix('torch.')}"
    if not a.numel() or not b.numel():
        return "an operand is empty"
    if a.is_cpu:
        return "" if first.scaling.kind == "tensor" or _CPU_TAKES_ROWS else "this torch._scaled_mm takes one scale per tensor on CPUs"
    if first.format.name == second.format.name == "e5m2":
        return "torch._scaled_mm does not multiply e5m2 with e5m2"
    if first.scaling.kind == "row" and a.dtype is not torch.bfloat16:
        return "torch._scaled_mm gives only bfloat16 with one scale per row"
    rows = a.numel() // a.shape[-1]
    last = (a.shape[-1], b.shape[-1])  # last dimensions of the operands
    if gemm == "wgrad":
        summed, columns = rows, last[0 if state.is_transposed else 1]
    else:
        summed, columns = last[0], b.numel() // last[0]
    if summed % _ALIGNMENT or columns % _ALIGNMENT:
        return f"it sums {summed} products for {columns} columns, and torch._scaled_mm takes multiples of {_ALIGNMENT}"
    return ""


def of_codes(gemm: str, first: Cast, second: Cast, call: LinearCall) -> Tensor:
    """A GEMM's result from codes, of its two operands in their order, in the dtype of the call's x.

    *Cost:* a copy of the codes where the first operand is not row-major, or the second not column-major.
    """
    if gemm == "wgrad" and call.is_transposed:
        first, second = second, first
    assert first.codes is not None and second.codes is not None
    a, b = flat(first.codes), flat(second.codes)
    if gemm == "wgrad":
        a = a.t()
    elif (gemm == "fprop") != call.is_transposed:
        b = b.t()
    if b.stride(0) != 1 or b.stride(1) != b.shape[0]:
        b = b.t().contiguous().t()
    scale_a, scale_b = first.scale_inv, second.scale_inv
    y = torch._scaled_mm(
        a.contiguous(),
        b,
        scale_a=scale_a.reshape(-1, 1) if scale_a.dim() else scale_a,
        scale_b=scale_b.reshape(1, -1) if scale_b.dim() else scale_b,
        out_dtype=call.x.dtype,
        use_fast_accum=gemm == "fprop",  # as in Transformer Engine
    )
    if gemm == "fprop" and call.bias is not None:
        y += call.bias.to(y.dtype)
    return y if gemm == "wgrad" else y.view(*call.x.shape[:-1], y.shape[-1])


def _named(device: torch.device) -> str:
    return "the CPU" if device.type == "cpu" else torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
