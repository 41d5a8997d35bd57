"""A linear layer with Transformer Engine's arguments and parameter names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from numscope.precision.gemm.linear import product
from numscope.precision.gemm.passes import in_autocast_dtype
from numscope.precision.modules.norm import AfterNorm
from numscope.precision.modules.parts import (
    GemmPart,
    Init,
    NamedModule,
    as_activation,
    attach,
    joined,
    split_names,
)


class Linear(NamedModule):
    """``y = x @ weight.T + bias``, a GEMM layer.

    Args:
        in_features: size of the input's last dimension.
        out_features: size of the output's last dimension.
        bias: whether there is one.
        return_bias: return ``(y, bias)`` instead of adding the bias.
        parameters_split: split weight and bias along dimension 0 into several parameters, ``query_weight`` and so on: names of parts of
            equal size, or sizes by name.
        init_method: initializes a weight in place; None: normal with standard deviation 0.023. Biases start at 0.
        params_dtype: of the parameters; None: torch's default.
        device: None: torch's default device if one is set, else CUDA if available.
        name: the layer's name in configurations.
        others: further arguments of Transformer Engine. Those without effect here are accepted.

    Raises: UsageError: an argument is wrong or not supported.
    """

    _numscope_gemm = True  # ``convert`` leaves its class alone

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        return_bias: bool = False,
        parameters_split: Sequence[str] | Mapping[str, int] | None = None,
        init_method: Init | None = None,
        params_dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        name: str | None = None,
        **others: Any,
    ) -> None:
        super().__init__(name, device, params_dtype, others)
        self.in_features = in_features
        self.out_features = out_features
        self.return_bias = return_bias
        self.use_bias = bias
        self.weight_names, self.bias_names = _add_split(self, parameters_split, in_features, out_features, bias, init_method)
        attach(self, name)
        self.reset_parameters()

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Tensor | tuple[Tensor, Tensor | None]:
        """
        Args:
            inp: shape ``(..., in_features)``.
            is_first_microbatch: ignored: a weight is quantized once as long as it does not change.

        Returns: Shape ``(..., out_features)``; with ``return_bias`` also the bias.
        """
        inp = in_autocast_dtype(inp)
        weight = joined([getattr(self, name) for name in self.weight_names])
        bias = joined([getattr(self, name) for name in self.bias_names])
        if self.return_bias:
            return product(self, inp, weight, None), as_activation(bias, inp)
        return product(self, inp, weight, bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.use_bias}"


def _add_split(
    module: NamedModule,
    split: Sequence[str] | Mapping[str, int] | None,
    in_features: int,
    out_features: int,
    bias: bool,
    init: Init | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Add a linear layer's weights, then its biases (None without bias), as ``parameters_split`` has them; returns their names."""
    sizes = split_names(type(module).__name__, out_features, split)
    for prefix, size in sizes.items():
        module.add(f"{prefix}weight", (size, in_features), init)
    for prefix, size in sizes.items():
        module.add(f"{prefix}bias", (size,) if bias else None, nn.init.zeros_)
    return tuple(f"{prefix}weight" for prefix in sizes), tuple(f"{prefix}bias" for prefix in sizes) if bias else ()


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
        super().__init__(
            in_features, eps, normalization, zero_centered_gamma, return_bias, return_layernorm_output, device, params_dtype, name, others
        )
        self.in_features = in_features
        self.out_features = out_features
        self.use_bias = bias
        weights, biases = _add_split(self, parameters_split, in_features, out_features, bias, init_method)
        self.gemm = GemmPart({key: key for key in weights}, {key: key for key in biases}, in_features, out_features, name)
        self.bind()
        self.reset_parameters()

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
