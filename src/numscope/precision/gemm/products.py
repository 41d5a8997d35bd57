"""The three GEMMs of a linear layer in torch's own calls, in the layouts in which autograd makes them: bitwise what it computes.

*Source:* ``addmm`` and ``mm`` in torch's ``derivatives.yaml``, ``mm_mat1_backward`` and ``mm_mat2_backward`` in its
``FunctionsManual.cpp``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["bias_gradient", "dgrad", "flat", "fprop", "is_plain", "wgrad"]


def is_plain(x: Tensor) -> bool:
    """Whether ``F.linear`` takes the input as one matrix, as it stands in memory. Others (1-D, views with gaps) it may batch or copy."""
    return x.dim() == 2 or (x.dim() > 2 and x.is_contiguous())


def flat(x: Tensor) -> Tensor:
    """All dimensions but the last as one."""
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def fprop(x: Tensor, weight: Tensor, bias: Tensor | None, is_transposed: bool = False, trains_weight: bool = False) -> Tensor:
    """``x Wᵀ + b``

    Args:
        x: [..., in_features]
        weight: [out_features, in_features]; transposed: [in_features, out_features].
        bias: [out_features]
        is_transposed: the weight is kept as transformers' ``Conv1D`` has it.
        trains_weight: the weight's gradient will be wanted, though this runs without grad mode.
    """
    if not is_transposed:
        if is_plain(x) or not trains_weight:
            return F.linear(x, weight, bias)
        # Whether it batches such an input depends on whether the weight wants a gradient.
        with torch.enable_grad():
            return F.linear(x.detach(), weight.detach().requires_grad_(), bias).detach()
    x2 = x.view(-1, x.shape[-1])
    y = x2.mm(weight) if bias is None else torch.addmm(bias, x2, weight)
    return y.view(*x.shape[:-1], weight.shape[1])


def dgrad(
    gradient: Tensor, weight: Tensor, x: Tensor, is_transposed: bool = False, bias: Tensor | None = None, is_high: bool = True
) -> Tensor:
    """``dy W``, in the shape and layout that the input's gradient has.

    Args:
        gradient: [..., out_features]
        weight: as ``fprop`` takes it.
        x: the input that it is the gradient of; its data is not read.
        is_transposed: likewise.
        bias: as ``fprop`` took it; its data is not read.
        is_high: no operand was quantized, so that it is to be bitwise what autograd computes.
    """
    if is_high and not is_transposed and not is_plain(x):
        return _by_autograd(x, weight, bias, gradient, of_input=True)
    g2, x2 = flat(gradient), flat(x)
    if x2.stride() == (1, x2.shape[0]):
        got = (weight if is_transposed else weight.t()).mm(g2.t()).t()
    else:
        got = g2.mm(weight.t() if is_transposed else weight)
    return got if x.dim() == 2 else got.reshape(x.shape)


def wgrad(
    gradient: Tensor, x: Tensor, weight: Tensor, is_transposed: bool = False, bias: Tensor | None = None, is_high: bool = True
) -> Tensor:
    """``dyᵀ x``, in the shape and layout that the weight's gradient has.

    Args:
        gradient: [..., out_features]
        x: [..., in_features]
        weight: that it is the gradient of; its data is not read.
        is_transposed: as ``fprop`` takes it.
        bias: as ``fprop`` took it; its data is not read.
        is_high: no operand was quantized, so that it is to be bitwise what autograd computes.
    """
    if is_high and not is_transposed and not is_plain(x):
        return _by_autograd(x, weight, bias, gradient, of_input=False)
    g2, x2 = flat(gradient), flat(x)
    factor = weight if is_transposed else weight.t()  # the second factor of fprop
    got = g2.t().mm(x2).t() if factor.stride() == (1, factor.shape[0]) else x2.t().mm(g2)
    return got if is_transposed else got.t()


def bias_gradient(gradient: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """The sum of the output's gradient over all dimensions but the last.

    Args:
        gradient: [..., out_features]
        bias: that it is the gradient of.
        x: the layer's input; its data is not read.
    """
    return (flat(gradient) if is_plain(x) else gradient).sum_to_size(bias.shape)


def _by_autograd(x: Tensor, weight: Tensor, bias: Tensor | None, gradient: Tensor, *, of_input: bool) -> Tensor:
    """A gradient of ``F.linear`` for inputs of which only it knows the way. *Cost:* one more GEMM, the forward's."""
    dtype = x.dtype
    bias = None if bias is None else bias.detach().to(dtype)
    with torch.enable_grad():
        x_leaf = x.detach().requires_grad_(of_input or x.requires_grad)
        weight_leaf = weight.detach().to(dtype).requires_grad_(not of_input or weight.requires_grad)
        return torch.autograd.grad(F.linear(x_leaf, weight_leaf, bias), x_leaf if of_input else weight_leaf, gradient)[0]
