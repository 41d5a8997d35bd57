"""A reader is shown tensors of modules' calls without a Python frame each, where that can be."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from numscope.probe import hook, optimizer
from numscope.probe.entry import ShownSites
from numscope.summary import native


@native.in_c
class Shower:
    """What of ``ModuleProbe._show_call`` is in C, for most calls.

    Args:
        tally: takes plain tensors of plain sites, see ``inspect/tally.py``.
        observe: takes a site, its tensor, and the shape in which it is meant where it has another one: all that the tally leaves to Python.
        begins: is called when a module has run forward.
        caught: gets what a gradient's hook raised; it raises again what is meant for the script.
    """

    def __init__(
        self,
        tally: object,
        observe: Callable[[int, Tensor, torch.Size | None], None],
        begins: Callable[[], None],
        caught: Callable[[Exception], None],
    ) -> None:
        self._share(tally, observe, begins, caught, optimizer, hook.ids, OrderedDict)

    def _share(self, *parts: object) -> None:
        """Tell C what it calls."""

    def shown(self, sites: ShownSites, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> bool:
        """A module has returned.

        Args:
            sites: of its activation, its output, and the output's gradient; None: not wanted.

        Returns: False if nothing was shown, and it is left to the caller.
        """
        return False

    def close(self) -> None:
        """Show nothing more."""
