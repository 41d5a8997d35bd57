"""Hooks that stay with the object that they were put on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any


class Hook(partial[Any]):
    """A hook that stays with the object it was put on: a copy, in memory or in a file, gets one in its place that does nothing.

    ``copy.deepcopy(model)`` would else copy the watch, and ``torch.save(model)`` try to write it. What stands in needs no numscope to load.
    """

    __torch_unserializable__ = True  # no warning from torch when a tensor that has it is saved

    def __deepcopy__(self, memo: object) -> Callable[..., None]:
        return nullcontext().__exit__

    def __reduce__(self) -> Any:
        return getattr, (nullcontext(), "__exit__")
