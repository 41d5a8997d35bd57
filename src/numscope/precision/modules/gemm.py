"""The GEMM layers of the modules: recipes, switches and statistics act on each by its own name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from numscope.precision.gemm.linear import product
from numscope.precision.gemm.recipes import HighPrecision
from numscope.precision.gemm.state import ATTRIBUTE, LayerState
from numscope.precision.modules.parts import Part
from numscope.records.errors import UsageError


def attach(module: nn.Module, name: str | None) -> None:
    """Make a module a GEMM layer: it computes as plain PyTorch until ``autocast``, ``convert`` or a switch changes that. Its forward
    calls ``linear.product``; the name is for messages."""
    module.__dict__[ATTRIBUTE] = LayerState(module, name or "", HighPrecision())


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Parameters that were split along dimension 0 as one tensor, for a GEMM. *Cost:* a copy if there are several."""
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


class GemmPart(Part):
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
        """The weight, as one tensor."""
        return joined([self._held(name) for name in self.weight_names])

    def bias(self) -> Tensor | None:
        """The bias, as one tensor."""
        return joined([self._held(name) for name in self.bias_names]) if self.bias_names else None

    def forward(self, x: Tensor, add_bias: bool = True) -> Tensor:
        return product(self, x, self.weight(), self.bias() if add_bias else None)

    def _held(self, name: str) -> Tensor:
        found = self.parameter(name)
        assert found is not None
        return found


def split_names(where: str, out_features: int, split: Sequence[str] | Mapping[str, int] | None) -> dict[str, int]:
    """Prefix of each parameter → its rows: ``{"": out_features}`` for one weight, ``{"query_": 64, …}`` for several.

    Args:
        where: class name, for messages.
        out_features: rows of all parameters together.
        split: names of parts of equal size, or sizes by name; None: one parameter.

    Raises: UsageError: the names or sizes are wrong.
    """
    if split is None:
        return {"": out_features}
    names = list(split)
    if not names or isinstance(split, str) or not all(isinstance(name, str) and name.rstrip("_") for name in names):
        raise UsageError(f"{where}: parameters_split: got {split!r}, expected names, or a dict of names and sizes.")
    if isinstance(split, Mapping):
        sizes: dict[str, Any] = {f"{name.rstrip('_')}_": size for name, size in split.items()}
    else:
        sizes = {f"{name.rstrip('_')}_": out_features // len(names) for name in names}
    if len(sizes) != len(names):
        raise UsageError(f"{where}: parameters_split: got {split!r}, expected distinct names.")
    if sum(sizes.values()) != out_features:
        rows = ", ".join(map(str, sizes.values()))
        raise UsageError(f"{where}: parameters_split: got parts of {rows} rows, expected a total of out_features, which is {out_features}.")
    return sizes
