"""The two backends: ``emulate`` gives dequantized operands to a high-precision GEMM, ``scaled_mm`` gives codes to an fp8 GEMM.

Both take the same quantized operands. The emulation rounds a dequantized operand once to the dtype of the computation, and products add
up in that GEMM's order. An fp8 GEMM multiplies codes exactly, adds up in float32 in its own order, and rounds once. With K products of
magnitude at most ``a b``, the two results differ by at most ``K a b (K 2^-23 + 3 u)``, where u is the unit roundoff of the dtype of the
computation: 2^-24 in float32, 2^-8 in bfloat16.
"""

from __future__ import annotations

import functools
import logging

import torch
from torch import Tensor

from numscope.precision.casting.cast import Cast
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.products import LinearCall, flat
from numscope.precision.gemm.state import LayerState

log = logging.getLogger("numscope")

_FORMATS = frozenset({"e4m3fn", "e5m2"})
_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
_ALIGNMENT = 16  # of the summed dimension and of the result's columns, as cuBLAS has it
_CAPABILITY = (8, 9)  # Ada; Hopper is (9, 0)


@functools.cache
def has_fp8_gemm(device: torch.device) -> bool:
    """Whether a device has fp8 GEMMs. The CPU's ``_scaled_mm`` is correct but slow, so it is used only when chosen by name."""
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= _CAPABILITY


def takes_codes(state: LayerState, gemm: str, first: How | None, second: How | None, a: Tensor, b: Tensor) -> bool:
    """Whether a GEMM of the operands a and b runs on codes. If it should and can't, the reason is logged once per layer."""
    backend = state.backend
    if backend == "emulate" or (backend == "auto" and not has_fp8_gemm(a.device)):
        if backend == "auto" and "emulate" not in state.cohort.said:
            state.cohort.said.add("emulate")
            log.info("%s, and layers converted with it: fp8 GEMMs are emulated, as %s has none.", state.name or "a layer", _named(a.device))
        return False
    if first is None and second is None:
        return False
    reason = _obstacle(state, gemm, first, second, a, b)
    if not reason:
        if "scaled_mm" not in state.cohort.said:
            state.cohort.said.add("scaled_mm")
            log.info("%s, and layers converted with it: fp8 GEMMs run on torch._scaled_mm.", state.name or "a layer")
        return True
    if (gemm, reason) not in state.said:
        state.said.add((gemm, reason))
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
        return ""
    if first.format.name == second.format.name == "e5m2":
        return "torch._scaled_mm does not multiply e5m2 with e5m2"
    if first.scaling.kind == "row" and a.dtype is not torch.bfloat16:
        return "torch._scaled_mm gives only bfloat16 with one scale per row"
    rows = a.numel() // a.shape[-1]
    last = (a.shape[-1], b.shape[-1])  # of both operands
    if gemm == "wgrad":
        summed, columns = rows, last[0 if state.is_transposed else 1]
    else:
        summed, columns = last[0], b.numel() // last[0]
    if summed % _ALIGNMENT or columns % _ALIGNMENT:
        return f"it sums {summed} products for {columns} columns, and torch._scaled_mm takes multiples of {_ALIGNMENT}"
    return ""


def fprop(x: Cast, weight: Cast, call: LinearCall) -> Tensor:
    """``x Wᵀ + b`` from codes, in the dtype of the call's x."""
    codes, w = _codes(x), _codes(weight)
    dtype = call.x.dtype
    y = _multiply(flat(codes), x.scale_inv, w if call.is_transposed else w.t(), weight.scale_inv, dtype, fast=True)
    if call.bias is not None:
        y += call.bias.to(dtype)
    return y.view(*codes.shape[:-1], y.shape[-1])


def dgrad(gradient: Cast, weight: Cast, call: LinearCall) -> Tensor:
    """``dy W`` from codes, those of the weight columnwise."""
    w = _codes(weight)
    dx = _multiply(flat(_codes(gradient)), gradient.scale_inv, w.t() if call.is_transposed else w, weight.scale_inv, call.x.dtype)
    return dx.view(call.x.shape)


def wgrad(gradient: Cast, x: Cast, call: LinearCall) -> Tensor:
    """``dyᵀ x`` from codes, both columnwise."""
    left, right = (x, gradient) if call.is_transposed else (gradient, x)
    return _multiply(flat(_codes(left)).t(), left.scale_inv, flat(_codes(right)), right.scale_inv, call.x.dtype)


def _multiply(a: Tensor, a_scale_inv: Tensor, b: Tensor, b_scale_inv: Tensor, dtype: torch.dtype, fast: bool = False) -> Tensor:
    """a [M, K] times b [K, N]. The first has to be row-major, the second column-major. *Cost:* a copy of the codes if one is not."""
    if b.stride(0) != 1 or b.stride(1) != b.shape[0]:
        b = b.t().contiguous().t()
    return torch._scaled_mm(
        a.contiguous(),
        b,
        scale_a=a_scale_inv.reshape(-1, 1) if a_scale_inv.dim() else a_scale_inv,
        scale_b=b_scale_inv.reshape(1, -1) if b_scale_inv.dim() else b_scale_inv,
        out_dtype=dtype,
        use_fast_accum=fast,  # forward only, as Transformer Engine has it
    )


def _codes(made: Cast) -> Tensor:
    assert made.codes is not None
    return made.codes


def _named(device: torch.device) -> str:
    return "the CPU" if device.type == "cpu" else torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
