"""Norm and two-layer perceptron in one module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numscope.precision.gemm.passes import in_autocast_dtype
from numscope.precision.modules.arguments import Init, check_one_of, check_others, device_for, fill, new_parameter
from numscope.precision.modules.gemm import GemmPart
from numscope.precision.modules.linear import as_activation
from numscope.precision.modules.norm import NormPart, check_normalization, reset_norm
from numscope.precision.modules.parts import Whole


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _qgelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _srelu(x: Tensor) -> Tensor:
    return F.relu(x).square()


# Each by its name, with whether it is gated: the first half of fc1's output then goes through the function and scales the second.
ACTIVATIONS: Mapping[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "gelu": (_gelu, False),
    "geglu": (_gelu, True),
    "qgelu": (_qgelu, False),
    "qgeglu": (_qgelu, True),
    "relu": (F.relu, False),
    "reglu": (F.relu, True),
    "srelu": (_srelu, False),
    "sreglu": (_srelu, True),
    "silu": (F.silu, False),
    "swiglu": (F.silu, True),
}


class LayerNormMLP(Whole):
    """A norm, a linear layer, an activation function, a linear layer.

    Parameters: ``layer_norm_weight``, ``layer_norm_bias`` (not of RMSNorm), ``fc1_weight``, ``fc1_bias``, ``fc2_weight``, ``fc2_bias``.
    Layers: ``<name>.fc1`` and ``<name>.fc2``, its GEMMs, and ``<name>.layer_norm``.

    Args:
        hidden_size: size of the last dimension of input and output.
        ffn_hidden_size: size between the two layers.
        eps: added to the norm's variance, or to the mean square.
        bias: whether both layers have one.
        normalization: ``LayerNorm`` or ``RMSNorm``.
        activation: ``gelu`` (its tanh form), ``qgelu``, ``relu``, ``srelu`` (squared), ``silu``; or gated, for which fc1 gives twice as
            much: ``geglu``, ``qgeglu``, ``reglu``, ``sreglu``, ``swiglu``.
        zero_centered_gamma: the norm's weight starts at 0 and its factor is ``1 + weight``.
        return_bias: hand fc2's bias back instead of adding it.
        return_layernorm_output: what the norm gives as well, last.
        init_method, output_layer_init_method: fill fc1's and fc2's weight; normal with standard deviation 0.023 where not given.
        params_dtype, device, name, others: as of ``Linear``.

    Raises: UsageError.
    """

    def __init__(
        self,
        hidden_size: int,
        ffn_hidden_size: int,
        eps: float = 1e-5,
        bias: bool = True,
        *,
        normalization: str = "LayerNorm",
        activation: str = "gelu",
        zero_centered_gamma: bool = False,
        return_bias: bool = False,
        return_layernorm_output: bool = False,
        init_method: Init | None = None,
        output_layer_init_method: Init | None = None,
        params_dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        name: str | None = None,
        **others: Any,
    ) -> None:
        super().__init__()
        where = type(self).__name__
        check_others(type(self), others)
        check_one_of(where, "activation", activation, tuple(ACTIVATIONS))
        self.normalization = check_normalization(where, normalization)
        self.hidden_size = hidden_size
        self.ffn_hidden_size = ffn_hidden_size
        self.eps = eps
        self.activation = activation
        self.use_bias = bias
        self.return_bias = return_bias
        self.return_layernorm_output = return_layernorm_output
        self.zero_centered_gamma = zero_centered_gamma
        self.init_method = init_method
        self.output_layer_init_method = output_layer_init_method
        self.name = name
        place = device_for(device)
        inner = ffn_hidden_size * (2 if ACTIVATIONS[activation][1] else 1)

        def parameter(*shape: int) -> nn.Parameter:
            return new_parameter(shape, place, params_dtype)

        self.layer_norm_weight = parameter(hidden_size)
        self.layer_norm_bias = parameter(hidden_size) if self.normalization == "LayerNorm" else None
        self.fc1_weight = parameter(inner, hidden_size)
        self.fc1_bias = parameter(inner) if bias else None
        self.fc2_weight = parameter(hidden_size, ffn_hidden_size)
        self.fc2_bias = parameter(hidden_size) if bias else None
        self.layer_norm = NormPart(eps, self.normalization, zero_centered_gamma, name and f"{name}.layer_norm")
        self.fc1 = self._gemm("fc1", hidden_size, inner)
        self.fc2 = self._gemm("fc2", ffn_hidden_size, hidden_size)
        self.bind()
        self.reset_parameters()

    def _gemm(self, which: str, in_features: int, out_features: int) -> GemmPart:
        biases = {"bias": f"{which}_bias"} if self.use_bias else {}
        return GemmPart({"weight": f"{which}_weight"}, biases, in_features, out_features, self.name and f"{self.name}.{which}")

    def reset_parameters(self) -> None:
        """Draw the weights anew; the norm does nothing then, biases are 0."""
        reset_norm(self.layer_norm_weight, self.layer_norm_bias, self.zero_centered_gamma)
        fill(self.fc1_weight, self.init_method)
        fill(self.fc2_weight, self.output_layer_init_method)
        for bias in (self.fc1_bias, self.fc2_bias):
            if bias is not None:
                fill(bias, nn.init.zeros_)

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Tensor | tuple[Tensor | None, ...]:
        """
        Args:
            inp: shape ``(..., hidden_size)``.
            is_first_microbatch: not needed: a weight is quantized once as long as it does not change.

        Returns: shape ``(..., hidden_size)``; then, where asked for, fc2's bias and what the norm gave.
        """
        inp = in_autocast_dtype(inp)
        normed = self.layer_norm(inp)
        between = activate(self.fc1(normed), self.activation)
        out: Tensor = self.fc2(between, not self.return_bias)
        if not (self.return_bias or self.return_layernorm_output):
            return out
        more: tuple[Tensor | None, ...] = (as_activation(self.fc2_bias, inp),) if self.return_bias else ()
        return (out, *more, normed) if self.return_layernorm_output else (out, *more)

    def extra_repr(self) -> str:
        sizes = f"{self.hidden_size}, {self.ffn_hidden_size}"
        return f"{sizes}, normalization={self.normalization}, activation={self.activation}, bias={self.use_bias}"


def activate(x: Tensor, activation: str) -> Tensor:
    """An activation function by name; a gated one halves the last dimension."""
    function, gated = ACTIVATIONS[activation]
    if not gated:
        return function(x)
    gate, passed = x.chunk(2, dim=-1)
    return function(gate) * passed
