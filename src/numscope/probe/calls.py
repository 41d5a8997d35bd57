"""The outermost calls of a model: a forward that the script calls, not one within it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from threading import get_ident
from typing import Any, Protocol

import torch
from torch import nn

from numscope.probe.entry import Entry

_task = torch._C._current_graph_task_id
_jit_tracing = torch._C._get_tracing_state
_dispatch_mode = torch._C._get_dispatch_mode
_PROXY = torch._C._TorchDispatchModeKey.PROXY
_CALL = nn.Module._call_impl.__code__


class CallListener(Protocol):
    """What is told of outermost calls."""

    def enter(self, module: nn.Module, entry: Entry, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An outermost call begins."""

    def leave(self, module: nn.Module, entry: Entry, output: Any, failed: bool) -> None:
        """An outermost call has returned, or raised."""


def in_backward() -> bool:
    """Whether autograd is at work on this thread: a forward that runs now is a recomputation for activation checkpointing."""
    return _task() != -1


def is_traced() -> bool:
    """Whether torch.jit.trace or make_fx is at work, and would write what we do into the script's graph."""
    return _jit_tracing() is not None or _dispatch_mode(_PROXY) is not None


class Calls:
    """Finds the outermost ones among all calls of a model's modules; one at a time, on one thread.

    Args:
        listener: is told of them; what it raises goes through.

    Attributes:
        module: whose outermost call is running.
    """

    def __init__(self, listener: CallListener) -> None:
        self._listener = listener
        self.module: nn.Module | None = None
        self._depth = 0
        self._thread = 0

    def before(self, entry: Entry, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A module is called."""
        if module is self.module and self._thread == get_ident():
            self._depth += 1
            if not _calls_itself(module):  # the call before was left by an interrupt, of which torch tells no hook
                self.module = None
                self._listener.leave(module, entry, None, True)
        if self.module is None and _task() == -1:  # in_backward()
            self.begin(entry, module, args, kwargs)

    def begin(self, entry: Entry, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """This call is an outermost one."""
        self.module, self._depth, self._thread = module, 1, get_ident()
        self._listener.enter(module, entry, args, kwargs)

    def after(self, entry: Entry, module: nn.Module, output: Any, failed: bool) -> None:
        """A module's call has returned, or raised."""
        if module is self.module and self._thread == get_ident():
            self._depth -= 1
            if self._depth == 0:
                self.module = None
                self._listener.leave(module, entry, output, failed)


def _calls_itself(module: nn.Module) -> bool:
    """Whether the call that is beginning is inside another call of the same module."""
    frame = sys._getframe(1)
    calls = 0
    while calls < 2 and (outer := frame.f_back) is not None:
        frame = outer
        calls += frame.f_code is _CALL and frame.f_locals.get("self") is module
    return calls == 2
