"""Watching models that a script builds by itself: the outermost module that is called is watched from that call on."""

from __future__ import annotations

import contextlib
import logging
import sys
import weakref
from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from numscope import scope as scopes
from numscope.errors import AbortAfter, NonFiniteError
from numscope.options import WatchOptions
from numscope.probe.module import in_backward
from numscope.probe.naming import peel

log = logging.getLogger("numscope")

MAX_MODELS = 16  # a script that calls more models than this calls modules one by one


class AutoWatch:
    """A context manager: each model that is called within is watched; leaving closes the watches.

    Modules without parameters (losses, activations called alone) are no models: their operations belong to the loss.

    Args:
        options: for every model.
    """

    def __init__(self, options: WatchOptions) -> None:
        self.options = options
        self.scopes: list[scopes.Scope] = []
        self._seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # of what was looked at and left alone
        self._hook: Any = None

    def __enter__(self) -> AutoWatch:
        self._hook = register_module_forward_pre_hook(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop looking for models, close the watches."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        with contextlib.ExitStack() as stack:  # all are closed, though one finds something at its close
            for scope in reversed(self.scopes):
                stack.callback(scope.close)

    def _called(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or any(s.active for s in scopes.live()) or module in self._seen or in_backward():
            return
        try:
            self._attach(module, args)
        except (NonFiniteError, AbortAfter):  # of a scope that this one takes the place of
            raise
        except Exception as error:
            self._seen.update(module.modules())  # nor its parts, which it calls
            log.error("numscope can't watch %s: %s: %s", type(module).__name__, type(error).__name__, error)

    def _attach(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        inner = peel(module)
        known = (*self.scopes, *scopes.live())  # also what the script watches by itself
        if any(s.owns(inner) for s in known) or next(inner.parameters(), None) is None or len(self.scopes) >= MAX_MODELS:
            self._seen.add(module)
            return
        for scope in [s for s in self.scopes if any(m is s.model for m in inner.modules())]:
            self.scopes.remove(scope)  # a part was called alone before the whole
            scope.close()
        scope = scopes.Scope(module, self.options)
        self.scopes.append(scope)
        self._seen.add(module)
        if inner is module:  # its own hooks were not there yet when this call began
            scope.adopt(args, _keyword_arguments(module))


def _keyword_arguments(module: nn.Module) -> Mapping[str, Any]:
    """Of the call that is on its way: global hooks are not told, so they are read from torch's own frame."""
    frame: FrameType | None = sys._getframe(3)
    for _ in range(4):
        if frame is None:
            break
        found = frame.f_locals.get("kwargs")
        if isinstance(found, dict) and frame.f_locals.get("self") is module:
            return found
        frame = frame.f_back
    return {}
