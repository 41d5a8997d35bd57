"""Linear layers with Transformer Engine's arguments and parameter names: alone, after a norm, and two of them as a perceptron."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numscope.precision.gemm.linear import product
from numscope.precision.gemm.passes import in_autocast_dtype
from numscope.precision.modules.norm import FusedModule
from numscope.precision.modules.parts import GemmPart, Init, NamedModule, as_activation, attach, joined
from numscope.records.checks import check_one_of
from numscope.records.errors import UsageError


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
    """Add a linear layer's weights, then its biases (None without bias), as ``parameters_split`` has them; returns their names.

    Raises: UsageError: the names or sizes of ``split`` are wrong.
    """
    where = f"{type(module).__name__}: parameters_split"
    sizes: dict[str, Any] = {"": out_features}  # by the parameters' prefix, such as ``query_``
    if split is not None:
        names = list(split)
        if not names or isinstance(split, str) or not all(isinstance(name, str) and name.rstrip("_") for name in names):
            raise UsageError(f"{where}: got {split!r}, expected names, or a dict of names and sizes.")
        each = split if isinstance(split, Mapping) else dict.fromkeys(names, out_features // len(names))
        sizes = {f"{name.rstrip('_')}_": each[name] for name in names}
        if len(sizes) != len(names):
            raise UsageError(f"{where}: got {split!r}, expected distinct names.")
        if sum(sizes.values()) != out_features:
            rows = ", ".join(map(str, sizes.values()))
            raise UsageError(f"{where}: got parts of {rows} rows, expected a total of out_features, which is {out_features}.")
    for prefix, size in sizes.items():
        module.add(f"{prefix}weight", (size, in_features), init)
    for prefix, size in sizes.items():
        module.add(f"{prefix}bias", (size,) if bias else None, nn.init.zeros_)
    return tuple(f"{prefix}weight" for prefix in sizes), tuple(f"{prefix}bias" for prefix in sizes) if bias else ()


class LayerNormLinear(FusedModule):
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


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _qgelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _srelu(x: Tensor) -> Tensor:
    return F.relu(x).square()


# Name → function, and whether it is gated: then it is applied to the first half of fc1's output, which scales the second half.
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


class LayerNormMLP(FusedModule):
    """A norm, a linear layer, an activation function, and another linear layer.

    Parameters: ``layer_norm_weight``, ``layer_norm_bias`` (LayerNorm only), ``fc1_weight``, ``fc1_bias``, ``fc2_weight``, ``fc2_bias``.
    Layers in configurations: the GEMMs ``<name>.fc1`` and ``<name>.fc2``, and ``<name>.layer_norm``.

    Args:
        hidden_size: size of the last dimension of input and output.
        ffn_hidden_size: size between the two layers.
        eps, normalization, zero_centered_gamma: as for ``LayerNormLinear``.
        bias: whether both layers have one.
        activation: ``gelu`` (its tanh form), ``qgelu``, ``relu``, ``srelu`` (squared), ``silu``; or a gated one, for which fc1 is twice as
            large: ``geglu``, ``qgeglu``, ``reglu``, ``sreglu``, ``swiglu``.
        return_bias: return fc2's bias instead of adding it.
        return_layernorm_output: also return the norm's output, last.
        init_method, output_layer_init_method: initialize fc1's and fc2's weight; None: normal with standard deviation 0.023.
        params_dtype, device, name, others: as for ``Linear``.

    Raises: UsageError: an argument is wrong or not supported.
    """

    fc2_bias: nn.Parameter | None

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
        super().__init__(
            hidden_size, eps, normalization, zero_centered_gamma, return_bias, return_layernorm_output, device, params_dtype, name, others
        )
        check_one_of(f"{type(self).__name__}: activation", activation, tuple(ACTIVATIONS))
        self.hidden_size = hidden_size
        self.ffn_hidden_size = ffn_hidden_size
        self.activation = activation
        self.use_bias = bias
        inner = ffn_hidden_size * (2 if ACTIVATIONS[activation][1] else 1)
        self.add("fc1_weight", (inner, hidden_size), init_method)
        self.add("fc1_bias", (inner,) if bias else None, nn.init.zeros_)
        self.add("fc2_weight", (hidden_size, ffn_hidden_size), output_layer_init_method)
        self.add("fc2_bias", (hidden_size,) if bias else None, nn.init.zeros_)
        self.fc1 = self._gemm("fc1", hidden_size, inner)
        self.fc2 = self._gemm("fc2", ffn_hidden_size, hidden_size)
        self.bind()
        self.reset_parameters()

    def _gemm(self, which: str, in_features: int, out_features: int) -> GemmPart:
        biases = {"bias": f"{which}_bias"} if self.use_bias else {}
        return GemmPart({"weight": f"{which}_weight"}, biases, in_features, out_features, self.named(which))

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Tensor | tuple[Tensor | None, ...]:
        """
        Args:
            inp: shape ``(..., hidden_size)``.
            is_first_microbatch: ignored: a weight is quantized once as long as it does not change.

        Returns: Shape ``(..., hidden_size)``; then, if wanted, fc2's bias and the norm's output.
        """
        normed = self.layer_norm(in_autocast_dtype(inp))
        out = self.fc2(activate(self.fc1(normed), self.activation), not self.return_bias)
        return self.returned(out, self.fc2_bias, normed)

    def extra_repr(self) -> str:
        sizes = f"{self.hidden_size}, {self.ffn_hidden_size}"
        return f"{sizes}, normalization={self.normalization}, activation={self.activation}, bias={self.use_bias}"


def activate(x: Tensor, activation: str) -> Tensor:
    """Apply an activation function by name. A gated one halves the last dimension."""
    function, gated = ACTIVATIONS[activation]
    if not gated:
        return function(x)
    gate, passed = x.chunk(2, dim=-1)
    return function(gate) * passed
