"""Turns autocast off, wherever a script turns it on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from numscope.probe.patching import patch


@contextlib.contextmanager
def without_autocast() -> Iterator[set[torch.dtype]]:
    """Have each ``torch.autocast`` that is entered do nothing. Yields the dtypes of those that would have done something, as they come."""
    met: set[torch.dtype] = set()

    def enter(original: Any, context: Any) -> Any:
        if not context._enabled:
            return original(context)
        met.add(context.fast_dtype)
        context._enabled = False
        try:
            return original(context)
        finally:
            context._enabled = True  # scripts enter one object again and again

    undo = patch(torch.amp.autocast_mode.autocast, "__enter__", enter)
    try:
        yield met
    finally:
        undo()
