"""A norm and a linear layer in one module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from numscope.precision.gemm.passes import in_autocast_dtype
from numscope.precision.modules.arguments import Init, device_for
from numscope.precision.modules.gemm import GemmPart, split_names
from numscope.precision.modules.linear import register, reset
from numscope.precision.modules.norm import AfterNorm


class LayerNormLinear(AfterNorm):
    """A norm, then a linear layer. Parameters: ``layer_norm_weight``, ``layer_norm_bias`` (LayerNorm only), ``weight``, ``bias``.

    In configurations, the module's name stands for its GEMM, whose activation is the norm's output. ``<name>.layer_norm`` is the norm.

    Args:
        in_features: size of the input's last dimension.
        out_features: size of the output's last dimension.
        eps: added to the norm's variance or mean square.
        bias: whether the linear layer has one.
        normalization: ``LayerNorm`` or ``RMSNorm``.
        zero_centered_gamma: the norm's weight starts at 0, and its factor is ``1 + weight``.
        return_bias: return the bias instead of adding it.
        return_layernorm_output: also return the norm's output, last.
        parameters_split, init_method, params_dtype, device, name, others: as for ``Linear``.

    Raises: UsageError: an argument is wrong or not supported.
    """

    _numscope_stand_in = "gemm"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        eps: float = 1e-5,
        bias: bool = True,
        *,
        normalization: str = "LayerNorm",
        zero_centered_gamma: bool = False,
        return_bias: bool = False,
        return_layernorm_output: bool = False,
        parameters_split: Sequence[str] | Mapping[str, int] | None = None,
        init_method: Init | None = None,
        params_dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        name: str | None = None,
        **others: Any,
    ) -> None:
        place = device_for(device)
        super().__init__(
            in_features, eps, normalization, zero_centered_gamma, return_bias, return_layernorm_output, place, params_dtype, name, others
        )
        self.in_features = in_features
        self.out_features = out_features
        self.use_bias = bias
        self.init_method = init_method
        sizes = split_names(type(self).__name__, out_features, parameters_split)
        register(self, sizes, in_features, place, params_dtype, bias)
        weights = {key: key for key in (f"{prefix}weight" for prefix in sizes)}
        biases = {key: key for key in (f"{prefix}bias" for prefix in sizes)} if bias else {}
        self.gemm = GemmPart(weights, biases, in_features, out_features, name)
        self.bind()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights, reset the norm, and set the biases to 0."""
        super().reset_parameters()
        reset(self, self.gemm.weight_names, self.gemm.bias_names, self.init_method)

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Tensor | tuple[Tensor | None, ...]:
        """
        Args:
            inp: shape ``(..., in_features)``.
            is_first_microbatch: ignored: a weight is quantized once as long as it does not change.

        Returns: Shape ``(..., out_features)``; then, if wanted, the bias and the norm's output.
        """
        normed = self.layer_norm(in_autocast_dtype(inp))
        bias = self.gemm.bias() if self.return_bias else None
        return self.returned(self.gemm(normed, not self.return_bias), bias, normed)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, normalization={self.normalization}, bias={self.use_bias}"
