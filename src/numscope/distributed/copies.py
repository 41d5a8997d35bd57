"""Copies: ranks that hold the same tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Copies:
    """Ranks that hold the same tensor: it counts once, and one of them writes it.

    Args:
        group: the process group of these ranks.
        first: whether this rank writes it.
        silent: the tensor also merges over a larger group that contains these ranks, and this rank's copy is left out there.
    """

    group: Any
    first: bool
    silent: bool = False


Groups = tuple[Any, ...]  # process groups to merge over, and ``Copies``
