"""A linear layer with Transformer Engine's arguments and parameter names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from numscope.precision.gemm.linear import product
from numscope.precision.gemm.passes import in_autocast_dtype
from numscope.precision.modules.arguments import Init, as_activation, device_for, fill, new_parameter
from numscope.precision.modules.gemm import attach, joined, split_names
from numscope.precision.modules.parts import NamedModule


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
        super().__init__(name, others)
        self.in_features = in_features
        self.out_features = out_features
        self.return_bias = return_bias
        self.init_method = init_method
        sizes = split_names(type(self).__name__, out_features, parameters_split)
        self.weight_names = tuple(f"{prefix}weight" for prefix in sizes)
        self.bias_names = tuple(f"{prefix}bias" for prefix in sizes)
        register(self, sizes, in_features, device_for(device), params_dtype, bias)
        self.use_bias = bias
        attach(self, name)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights, and set the biases to 0."""
        reset(self, self.weight_names, self.bias_names, self.init_method)

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Tensor | tuple[Tensor, Tensor | None]:
        """
        Args:
            inp: shape ``(..., in_features)``.
            is_first_microbatch: ignored: a weight is quantized once as long as it does not change.

        Returns: Shape ``(..., out_features)``; with ``return_bias`` also the bias.
        """
        inp = in_autocast_dtype(inp)
        weight = joined([getattr(self, name) for name in self.weight_names])
        bias = joined([getattr(self, name) for name in self.bias_names]) if self.use_bias else None
        if self.return_bias:
            return product(self, inp, weight, None), as_activation(bias, inp)
        return product(self, inp, weight, bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.use_bias}"


def register(
    module: nn.Module, sizes: Mapping[str, int], in_features: int, device: torch.device, dtype: torch.dtype | None, bias: bool
) -> None:
    """Register a module's weights, then its biases (None without bias), with the sizes that ``split_names`` returns."""
    for prefix, size in sizes.items():
        module.register_parameter(f"{prefix}weight", new_parameter((size, in_features), device, dtype))
    for prefix, size in sizes.items():
        module.register_parameter(f"{prefix}bias", new_parameter((size,), device, dtype) if bias else None)


def reset(module: nn.Module, weights: Sequence[str], biases: Sequence[str], init: Init | None) -> None:
    """Initialize a module's weights, and set its biases to 0."""
    for name in weights:
        fill(getattr(module, name), init)
    for name in biases:
        if getattr(module, name) is not None:
            fill(getattr(module, name), nn.init.zeros_)
