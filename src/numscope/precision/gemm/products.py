"""The three GEMMs of a linear layer in torch's own calls, in the memory layouts that autograd uses: bitwise what autograd computes.

*Source:* ``addmm`` and ``mm`` in torch's ``derivatives.yaml``, ``mm_mat1_backward`` and ``mm_mat2_backward`` in its
``FunctionsManual.cpp``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class LinearCall(NamedTuple):
    """What a linear layer was called with."""

    x: Tensor  # [..., in_features]
    weight: Tensor  # [out_features, in_features]; transposed: [in_features, out_features]
    bias: Tensor | None  # [out_features]
    is_transposed: bool  # whether the weight is stored as transformers' ``Conv1D`` stores it


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, is_transposed: bool) -> Tensor:
    """``x Wᵀ + b`` as torch computes it, of what a ``LinearCall`` holds."""
    if not is_transposed:
        return F.linear(x, weight, bias)
    x2 = x.view(-1, x.shape[-1])
    y = x2.mm(weight) if bias is None else torch.addmm(bias, x2, weight)
    return y.view(*x.shape[:-1], weight.shape[1])


def fprop(x: Tensor, weight: Tensor, call: LinearCall, is_high: bool) -> Tensor:
    """``x Wᵀ + b`` of two operands, quantized or not, of which the layer was called with others. If ``is_high``, no operand is quantized,
    and the result has to be bitwise torch's."""
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
