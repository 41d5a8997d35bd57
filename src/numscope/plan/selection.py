"""Which layers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """Layers by name, by number, by type; made by ``config``, which checks it.

    Args:
        pattern: regex searched for in the layer's name; alone.
        numbers: layer numbers; None: any.
        types: parts of a layer's name, or class names; None: any.
        containers: modules without parameters of their own too.
    """

    pattern: str | None = None
    numbers: frozenset[int] | None = None
    types: tuple[str, ...] | None = None
    containers: bool = False
