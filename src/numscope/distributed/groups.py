"""Copies: ranks that hold the same tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Copies:
    """Ranks that hold the same tensor: it counts once, and one of them writes it."""

    group: Any  # the process group of these ranks
    first: bool  # whether this rank writes it
    silent: bool = False  # the tensor also merges over a larger group that contains these ranks, and this rank's copy is left out there


Groups = tuple[Any, ...]  # process groups to merge over, and ``Copies``
