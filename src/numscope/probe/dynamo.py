"""Keeps torch.compile from reusing graphs traced without hooks, and notices modules compiled after a watch began."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

_undo: list[Callable[[], None]] = []


def prepare_dynamo() -> None:
    """Let compiled code be guarded by the hooks on its modules, so that graphs made without hooks are not taken for watched ones.

    Only where dynamo is loaded already: a model compiled later is traced with its hooks anyway. Graphs made so far are dropped, since torch
    keeps no note of which were made before.
    """
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and dynamo.config.skip_nnmodule_hook_guards:
        dynamo.config.skip_nnmodule_hook_guards = False
        dynamo.reset()
        _undo.append(partial(setattr, dynamo.config, "skip_nnmodule_hook_guards", True))


def release_dynamo() -> None:
    """No model is watched any more: torch's own setting is back. Graphs made meanwhile keep their guards."""
    while _undo:
        _undo.pop()()


def drop_graphs() -> None:
    """Graphs that dynamo made of a watched model, if nothing but the setting above tells them from bare ones."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and dynamo.config.skip_nnmodule_hook_guards:
        dynamo.reset()


def foretell_compiled(told: Callable[[nn.Module, tuple[Any, ...]], None]) -> Callable[[], None]:
    """Be told of the first call of each module whose ``compile`` method is called from now on, before it begins.

    Dynamo traces global hooks of such a call rather than runs them, and what is traced cannot put hooks on a module.

    Args:
        told: gets the module and the call's positional arguments.

    Returns: what ends it. Modules that are called afterwards for the first time still tell.
    """
    original = nn.Module.compile

    @functools.wraps(original)
    def compile(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made: Any = self._compiled_call_impl

        def first(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling() and self._compiled_call_impl is first:
                self._compiled_call_impl = made
                told(self, args)
            return made(*args, **kwargs)

        self._compiled_call_impl = first

    def undo() -> None:
        if nn.Module.compile is compile:
            nn.Module.compile = original  # type: ignore[method-assign]

    nn.Module.compile = compile  # type: ignore[method-assign]
    return undo
