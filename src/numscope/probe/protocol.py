"""The two sides that a ``ModuleProbe`` serves: a listener and a reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from numscope.probe.calls import CallListener
from numscope.probe.entry import Entry, Leaves


class ModuleListener(CallListener, Protocol):
    """Gets the calls of modules."""

    @property
    def tap(self) -> Callable[[Entry, Leaves], None]:
        """Is called when a module was called: its leaves with their slots, in order."""

    @property
    def gradient(self) -> Callable[[Entry, str, Tensor, torch.Size | None], None]:
        """Is called when an output's gradient came; the shape is the output's, where the gradient has another one."""

    def failed(self, error: Exception) -> None:
        """The tool itself failed; the listener is told nothing more."""


class TensorReader(Protocol):
    """Gets some tensors of some modules."""

    def observe(self, site: int, tensor: Tensor, shape: torch.Size | None = None) -> None:
        """A tensor that is wanted; ``shape``: in which it is meant, where it has another one."""

    def failed(self, error: Exception) -> None:
        """The tool itself failed; the reader is shown nothing more."""
