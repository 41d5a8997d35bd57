"""Fused modules in parts: the whole owns the parameters, as checkpoints have them; each GEMM and norm is a module that hooks can see.

Transformer Engine keeps all parameters of a fused module in that module (``fc1_weight``, ``fc2_weight``), and its debug tools still treat
each GEMM as a layer (``….fc1``, ``….fc2``). So here the whole owns the parameters, and its parts, child modules without any, borrow them.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from numscope.precision.gemm.layer_state import ATTRIBUTE, LayerState
from numscope.precision.gemm.linear import product
from numscope.precision.gemm.recipes import HighPrecision
from numscope.records.errors import UsageError
from numscope.records.words import nearest

Init = Callable[[Tensor], object]

INIT_STD = 0.023  # for weights without an init_method, as in Transformer Engine

# Arguments of Transformer Engine that choose how the same numbers are computed or communicated. Without tensor parallelism they change
# nothing there either, so they are accepted and ignored.
_WITHOUT_EFFECT = frozenset(
    "micro_batch_size parallel_mode return_layernorm_output_gathered seq_length sequence_parallel set_parallel_mode "
    "ub_bulk_dgrad ub_bulk_wgrad ub_name ub_overlap_ag ub_overlap_rs ub_overlap_rs_dgrad".split()
)
# Arguments that are not supported: the only value that is accepted, and what to do instead.
_UNSUPPORTED: Mapping[str, tuple[object, str]] = {
    "delay_wgrad_compute": (False, "The weight's gradient is computed in backward."),
    "fuse_wgrad_accumulation": (False, "Gradients are accumulated in .grad."),
    "get_rng_state_tracker": (None, "Seed torch's own generator; without tensor parallelism no tracker is needed."),
    "symmetric_ar_type": (None, "Nothing is reduced without tensor parallelism."),
    "tp_group": (None, "Split the module with torch.distributed.tensor.parallel, or use the framework's own layers with convert()."),
    "tp_size": (1, "Split the module with torch.distributed.tensor.parallel, or use the framework's own layers with convert()."),
}


def check_others(cls: type[nn.Module], given: Mapping[str, object]) -> None:
    """Accept arguments of Transformer Engine that a constructor does not name and that have no effect here; raise UsageError for others."""
    where = cls.__name__
    for name, value in given.items():
        if name in _WITHOUT_EFFECT:
            continue
        if name not in _UNSUPPORTED:
            raise UsageError(f"{where}: {name} is not an argument.{nearest(name, _known(cls))}")
        without, instead = _UNSUPPORTED[name]
        if value != without and not _of_one_rank(value):
            raise UsageError(f"{where}: {name}: got {value!r}, expected {without!r}: these modules do not support it. {instead}")


def _known(cls: type[nn.Module]) -> list[str]:
    return sorted({*inspect.signature(cls).parameters, *_WITHOUT_EFFECT, *_UNSUPPORTED} - {"others"})


def as_activation(bias: Tensor | None, x: Tensor) -> Tensor | None:
    """A bias that forward returns: under torch's autocast in the activation's dtype."""
    return bias if bias is None or not torch.is_autocast_enabled(x.device.type) else bias.to(x.dtype)


def _of_one_rank(value: Any) -> bool:
    """Whether it is a process group of this process alone."""
    size = getattr(value, "size", None)
    return callable(size) and not isinstance(value, Tensor) and size() == 1


class NamedModule(nn.Module):
    """A module with Transformer Engine's arguments; it loads their checkpoints without the scales and amaxes in their own format.

    Args:
        name: in configurations.
        device: of parameters; None: torch's default device if one is set, else CUDA if available.
        dtype: of parameters; None: torch's default.
        others: further arguments.
    """

    def __init__(
        self,
        name: str | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        others: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        check_others(type(self), others)
        self.name = name
        self._inits: dict[str, Init] = {}  # by parameter
        default = torch.get_default_device()
        if device is None:
            device = "cuda" if default.type == "cpu" and torch.cuda.is_available() else default
        self._place = torch.device(device), dtype or torch.get_default_dtype()

    def add(self, name: str, shape: tuple[int, ...] | None, init: Init | None) -> None:
        """Register a parameter, which is None without a shape; init None: normal with mean 0 and standard deviation 0.023."""
        device, dtype = self._place
        self.register_parameter(name, None if shape is None else nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self._inits[name] = init or _normal

    def add_norm(self, prefix: str, size: int, normalization: str, zero_centered_gamma: bool) -> None:
        """Register a norm's weight and bias (None for RMSNorm), with which it only normalizes."""
        self.add(f"{prefix}weight", (size,), nn.init.zeros_ if zero_centered_gamma else nn.init.ones_)
        self.add(f"{prefix}bias", (size,) if normalization == "LayerNorm" else None, nn.init.zeros_)

    def reset_parameters(self) -> None:
        """Initialize the weights, reset norms, and set the biases to 0. Parameters on ``meta`` stay as they are."""
        with torch.no_grad():
            for name, init in self._inits.items():
                parameter: Any = getattr(self, name)
                if parameter is not None and parameter.device.type != "meta":
                    init(parameter)

    def named(self, child: str) -> str | None:
        """A child's name in configurations; None if the module has none."""
        return self.name and f"{self.name}.{child}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.pop(f"{prefix}_extra_state", None)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _normal(weight: Tensor) -> None:
    weight.normal_(0.0, INIT_STD)


class FusedPart(nn.Module):
    """A child module that works with parameters of the module it is part of: its own name for each → the whole's attribute."""

    def __init__(self, borrowed: Mapping[str, str], name: str | None) -> None:
        super().__init__()
        self.borrowed = dict(borrowed)
        self.name = name
        self._whole: weakref.ref[nn.Module] | None = None  # weak: a cycle would delay freeing a deleted model

    def parameter(self, name: str) -> Tensor | None:
        """A parameter of the whole, read anew each time: sharding and casting replace parameters. None if it does not borrow such a one."""
        assert self._whole is not None
        found: Tensor | None = getattr(self._whole(), self.borrowed[name], None) if name in self.borrowed else None
        return found

    def _numscope_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that ``probe/layer_names.py`` counts as this layer's own."""
        held = {name: self.parameter(name) for name in self.borrowed}
        return {name: parameter for name, parameter in held.items() if isinstance(parameter, nn.Parameter)}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_whole": None}  # a weak reference can't be copied or pickled; the whole sets it again

    def extra_repr(self) -> str:
        return ", ".join(self.borrowed.values())


def attach(module: nn.Module, name: str | None) -> None:
    """Make a module a GEMM layer: it computes as plain PyTorch until ``autocast``, ``convert`` or a switch changes that. Its forward
    calls ``linear.product``; the name is for messages."""
    module.__dict__[ATTRIBUTE] = LayerState(module, name or "", HighPrecision())


def joined(parts: Sequence[Any]) -> Any:
    """Parameters split along dimension 0 as one tensor, for a GEMM; None if there is none. *Cost:* a copy if there are several."""
    return (parts[0] if len(parts) == 1 else torch.cat(tuple(parts))) if parts else None


class GemmPart(FusedPart):
    """One GEMM of a fused module.

    Args:
        weights: this layer's name for each parameter that the weight consists of → the whole's attribute.
        biases: the same for the bias; empty without one.
    """

    _numscope_gemm = True  # ``convert`` leaves its class alone

    def __init__(
        self, weights: Mapping[str, str], biases: Mapping[str, str], in_features: int, out_features: int, name: str | None
    ) -> None:
        super().__init__({**weights, **biases}, name)
        self.weight_names = tuple(weights)
        self.bias_names = tuple(biases)
        self.in_features = in_features
        self.out_features = out_features
        attach(self, name)

    def weight(self) -> Tensor:
        weight: Tensor = joined([self.parameter(name) for name in self.weight_names])
        return weight

    def bias(self) -> Tensor | None:
        bias: Tensor | None = joined([self.parameter(name) for name in self.bias_names])
        return bias

    def forward(self, x: Tensor, add_bias: bool = True) -> Tensor:
        return product(self, x, self.weight(), self.bias() if add_bias else None)
