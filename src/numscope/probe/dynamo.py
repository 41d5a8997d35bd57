"""Keeps torch.compile from reusing graphs traced without hooks, and notices modules compiled after a watch began."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from numscope.records.heap import instances_of

SHELL = "OptimizedModule"  # what torch.compile makes of a module; by name, since to import it would load dynamo

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


def shells_of(module: nn.Module) -> list[nn.Module]:
    """What ``torch.compile`` has made of a module. *Cost:* one walk over all objects."""
    shell = getattr(sys.modules.get("torch._dynamo.eval_frame"), SHELL, None)
    return [] if shell is None else [o for o in instances_of(shell) if getattr(o, "_orig_mod", None) is module]


def wrap_compiled(
    module: nn.Module,
    before: Callable[[tuple[Any, ...], Mapping[str, Any]], None],
    after: Callable[[Any, bool], None],
) -> Callable[[], None] | None:
    """Be told of the calls of a module whose ``compile`` method was called: its own hooks run inside the graph.

    Args:
        before: gets a call's arguments.
        after: gets its output, and whether it raised.

    Returns: what ends it; None: the module is not compiled.
    """
    impl: Any = module._compiled_call_impl
    if impl is None:
        return None

    def call(*args: Any, **kwargs: Any) -> Any:
        output = None
        try:
            before(args, kwargs)
            output = impl(*args, **kwargs)
            return output
        finally:
            after(output, output is None and sys.exc_info()[0] is not None)

    module._compiled_call_impl = call
    return partial(setattr, module, "_compiled_call_impl", impl)


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
