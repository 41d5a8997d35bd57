"""LayerNorm and RMSNorm, alone and as a part of the fused modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numscope.precision.modules.arguments import check_one_of, device_for, fill, new_parameter
from numscope.precision.modules.parts import Part, drop_extra_state
from numscope.records.errors import UsageError

Normalization = Literal["LayerNorm", "RMSNorm"]
NORMALIZATIONS: tuple[Normalization, ...] = get_args(Normalization)


def normalize(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, normalization: Normalization, zero_centered_gamma: bool
) -> Tensor:
    """Normalize over the last dimension; the result has ``x``'s dtype.

    Args:
        weight, bias: shape ``(x.shape[-1],)``.
        eps: added to the variance, or to the mean square.
        zero_centered_gamma: the factor is ``1 + weight``.

    *Cost:* the 1 is added in at least float32: in bfloat16 a weight below 0.004 would be lost in it.
    """
    shape, dtype = weight.shape, x.dtype
    if zero_centered_gamma:
        wide = torch.promote_types(weight.dtype, torch.float32)
        weight = 1 + weight.to(wide)
        bias = None if bias is None else bias.to(wide)
    if weight.dtype != dtype:  # normalized in the wider of the two
        wide = torch.promote_types(weight.dtype, dtype)
        x, weight = x.to(wide), weight.to(wide)
        bias = None if bias is None else bias.to(wide)
    out = F.layer_norm(x, shape, weight, bias, eps) if normalization == "LayerNorm" else F.rms_norm(x, shape, weight, eps)
    return out.to(dtype)


class NormPart(Part):
    """The norm of a fused module: borrows ``layer_norm_weight`` and ``layer_norm_bias``."""

    def __init__(self, eps: float, normalization: Normalization, zero_centered_gamma: bool, name: str | None) -> None:
        borrowed = {"weight": "layer_norm_weight"}
        if normalization == "LayerNorm":
            borrowed["bias"] = "layer_norm_bias"
        super().__init__(borrowed, name)
        self.eps = eps
        self.normalization = normalization
        self.zero_centered_gamma = zero_centered_gamma

    def forward(self, x: Tensor) -> Tensor:
        weight = self.parameter("weight")
        assert weight is not None
        bias = self.parameter("bias") if "bias" in self.borrowed else None
        return normalize(x, weight, bias, self.eps, self.normalization, self.zero_centered_gamma)


class _Norm(nn.Module):
    """What LayerNorm and RMSNorm share."""

    normalization: Normalization
    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float,
        *,
        zero_centered_gamma: bool = False,
        params_dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        if len(shape) != 1:
            raise UsageError(f"{type(self).__name__}: normalized_shape: got {shape}, expected one number, the last dimension's size.")
        self.eps = eps
        self.zero_centered_gamma = zero_centered_gamma
        self.name = name
        place = device_for(device)
        self.weight = new_parameter(shape, place, params_dtype)
        self.bias = new_parameter(shape, place, params_dtype) if self.normalization == "LayerNorm" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1 (0 where it is zero-centered), bias 0."""
        reset_norm(self.weight, self.bias, self.zero_centered_gamma)

    def forward(self, x: Tensor) -> Tensor:
        return normalize(x, self.weight, self.bias, self.eps, self.normalization, self.zero_centered_gamma)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        drop_extra_state(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


class LayerNorm(_Norm):
    """Layer normalization of the last dimension, with weight and bias.

    Args:
        normalized_shape: size of the last dimension.
        eps: added to the variance.
        zero_centered_gamma: the weight starts at 0 and the factor is ``1 + weight``.
        params_dtype: torch's default where not given.
        device: where not given, torch's default device, else CUDA if there is any.
        name: what configurations know the layer by.

    Raises: UsageError.

    *Source:* Ba, Kiros and Hinton, Layer Normalization, 2016.
    """

    normalization = "LayerNorm"

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, **options: Any) -> None:
        super().__init__(normalized_shape, eps, **options)


class RMSNorm(_Norm):
    """Root-mean-square normalization of the last dimension, with a weight and no bias.

    Args:
        normalized_shape: size of the last dimension.
        eps: added to the mean square.
        options: as of ``LayerNorm``.

    Raises: UsageError.

    *Source:* Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.
    """

    normalization = "RMSNorm"

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, **options: Any) -> None:
        super().__init__(normalized_shape, eps, **options)


class L2Normalization(nn.Module):
    """Scales the last dimension to unit length; no parameters."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + self.eps)).to(x.dtype)


def reset_norm(weight: nn.Parameter, bias: nn.Parameter | None, zero_centered_gamma: bool) -> None:
    """Weight 1 (0 where it is zero-centered), bias 0."""
    fill(weight, nn.init.zeros_ if zero_centered_gamma else nn.init.ones_)
    if bias is not None:
        fill(bias, nn.init.zeros_)


def check_normalization(where: str, normalization: str) -> Normalization:
    """
    Raises: UsageError: it is none that there is.
    """
    check_one_of(where, "normalization", normalization, NORMALIZATIONS)
    return "RMSNorm" if normalization == "RMSNorm" else "LayerNorm"
