"""A layer as selections know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GEMMS: Final = ("fprop", "dgrad", "wgrad")  # y = x Wᵀ, dx = dy W, dW = dyᵀ x


@dataclass(frozen=True, slots=True)
class Layer:
    """A module as selections know it.

    Args:
        name: the one it was given (its ``name`` attribute), else its qualified name, else ``Layer_1``.
        cls: class name.
        qualified: its qualified name in the model.
        weights: its own parameters' names without biases, such as ``("weight",)``.
        numel_weights: elements of these together.
        weight_bytes: their bytes.
        owns_parameters: whether it has parameters of its own; one that has not is a container or a function.
    """

    name: str
    cls: str
    qualified: str
    weights: tuple[str, ...] = ()
    numel_weights: int = 0
    weight_bytes: int = 0
    owns_parameters: bool = True
