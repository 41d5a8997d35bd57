"""A listener is told of modules' calls without a Python frame each, where that can be."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from numscope.probe import hook, optimizer, walk
from numscope.probe.entry import Entry, Leaves
from numscope.summary import native


@native.in_c
class Teller:
    """What of ``ModuleProbe._after`` is in C, for most calls: tells a listener of a call's leaves, and later of the outputs' gradients.

    Args:
        tap: gets a call's entry and leaves.
        gradient: gets a gradient's entry and slot, itself, and the output's shape where it has another one; None: they are not wanted.
        caught: gets what ``gradient`` raised; it raises again what is meant for the script.
    """

    def __init__(
        self,
        tap: Callable[[Entry, Leaves], None],
        gradient: Callable[[Entry, str, Tensor, torch.Size | None], None] | None,
        caught: Callable[[Exception], None],
    ) -> None:
        self._share(tap, gradient, caught, walk.leaves, optimizer, hook.ids, OrderedDict)

    def _share(self, *parts: object) -> None:
        """Tell C what it calls."""

    def heard(self, entry: Entry, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> bool:
        """A module has returned. Returns: False if nothing was told, and it is left to the caller."""
        return False

    def close(self) -> None:
        """Tell nothing more."""
