"""Layers as selections see them, and their GEMMs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GEMMS: Final = ("fprop", "dgrad", "wgrad")  # y = x Wᵀ, dx = dy W, dW = dyᵀ x


@dataclass(frozen=True, slots=True)
class Layer:
    """A module as selections see it.

    Args:
        name: its ``name`` attribute, else its qualified name, else ``Layer_1``.
        cls: class name.
        qualified: its qualified name in the model.
        weights: names of its own parameters without biases, such as ``("weight",)``.
        numel_weights: number of elements of these.
        weight_bytes: their bytes.
        owns_parameters: whether it has its own parameters; a module without is a container or a function.
    """

    name: str
    cls: str
    qualified: str
    weights: tuple[str, ...] = ()
    numel_weights: int = 0
    weight_bytes: int = 0
    owns_parameters: bool = True
