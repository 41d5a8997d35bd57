"""Norm and linear in one module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from numscope.precision.gemm.passes import in_autocast_dtype
from numscope.precision.modules.arguments import Init, check_others, device_for, new_parameter
from numscope.precision.modules.gemm import GemmPart, split_names
from numscope.precision.modules.linear import as_activation, register, reset
from numscope.precision.modules.norm import NormPart, check_normalization, reset_norm
from numscope.precision.modules.parts import Whole


class LayerNormLinear(Whole):
    """A norm, then a linear layer. Parameters: ``layer_norm_weight``, ``layer_norm_bias`` (not of RMSNorm), ``weight``, ``bias``.

    As a layer it is its GEMM: its activation is what the norm gives. The norm is a layer of its own, ``<name>.layer_norm``.

    Args:
        in_features: size of the input's last dimension.
        out_features: size of the output's.
        eps: added to the norm's variance, or to the mean square.
        bias: whether the linear layer has one.
        normalization: ``LayerNorm`` or ``RMSNorm``.
        zero_centered_gamma: the norm's weight starts at 0 and its factor is ``1 + weight``.
        return_bias: hand the bias back instead of adding it.
        return_layernorm_output: what the norm gives as well, last.
        parameters_split, init_method, params_dtype, device, name, others: as of ``Linear``.

    Raises: UsageError.
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
        super().__init__()
        where = type(self).__name__
        check_others(type(self), others)
        self.normalization = check_normalization(where, normalization)
        self.in_features = in_features
        self.out_features = out_features
        self.eps = eps
        self.use_bias = bias
        self.return_bias = return_bias
        self.return_layernorm_output = return_layernorm_output
        self.zero_centered_gamma = zero_centered_gamma
        self.init_method = init_method
        self.name = name
        sizes = split_names(where, out_features, parameters_split)
        place = device_for(device)
        self.layer_norm_weight = new_parameter((in_features,), place, params_dtype)
        self.layer_norm_bias = new_parameter((in_features,), place, params_dtype) if self.normalization == "LayerNorm" else None
        register(self, sizes, in_features, place, params_dtype, bias)
        weights = {key: key for key in (f"{prefix}weight" for prefix in sizes)}
        biases = {key: key for key in (f"{prefix}bias" for prefix in sizes)} if bias else {}
        self.layer_norm = NormPart(eps, self.normalization, zero_centered_gamma, name and f"{name}.layer_norm")
        self.gemm = GemmPart(weights, biases, in_features, out_features, name)
        self.bind()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew; the norm does nothing then, biases are 0."""
        reset_norm(self.layer_norm_weight, self.layer_norm_bias, self.zero_centered_gamma)
        reset(self, self.gemm.weight_names, self.gemm.bias_names, self.init_method)

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Tensor | tuple[Tensor | None, ...]:
        """
        Args:
            inp: shape ``(..., in_features)``.
            is_first_microbatch: not needed: a weight is quantized once as long as it does not change.

        Returns: shape ``(..., out_features)``; then, where asked for, the bias and what the norm gave.
        """
        inp = in_autocast_dtype(inp)
        normed = self.layer_norm(inp)
        out = self.gemm(normed, not self.return_bias)
        if not (self.return_bias or self.return_layernorm_output):
            return out  # type: ignore[no-any-return]
        more: tuple[Tensor | None, ...] = (as_activation(self.gemm.bias(), inp),) if self.return_bias else ()
        return (out, *more, normed) if self.return_layernorm_output else (out, *more)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, normalization={self.normalization}, bias={self.use_bias}"
