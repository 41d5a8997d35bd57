"""Calls of a training loop's own: gradients are clipped, a scheduler steps, GradScaler scales a loss and unscales gradients.

Torch has no hooks for them, so their functions are patched while any listener is there, and put back with the last one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, GeneratorType
from typing import Any, Literal, cast

import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim.lr_scheduler import LRScheduler

from numscope.probe import optimizer
from numscope.probe.calls import is_captured
from numscope.probe.dynamo import run_plainly
from numscope.probe.living import Living
from numscope.probe.patching import patch, patch_inside, patch_warnings

Kind = Literal["clip", "scheduler", "scale", "unscale"]


@dataclass(frozen=True, slots=True)
class LoopCall:
    """A call of a function of the loop, before it runs, but for ``scale``.

    Args:
        kind: ``clip``: of gradients, by norm or value; ``scheduler``: its step; ``scale``: of a loss; ``unscale``: of gradients.
        target: the scheduler, or the scaler; None for ``clip``.
        args: what it was called with, by position; of ``scale`` what it returns.
        kwargs: and by name.
    """

    kind: Kind
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def given(self, position: int, name: str) -> Any:
        """An argument, however it was given; None without it."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)


class LoopListener:
    """Is told of each call of the process; overrides what it needs."""

    def called(self, call: LoopCall) -> None:
        """A function of the loop is about to run."""

    def returned(self, call: LoopCall) -> None:
        """It has run."""


_listeners: Living[LoopListener] = Living()
_undo: list[Callable[[], None]] = []
_lock = threading.RLock()


class _Thread(threading.local):
    in_scheduler = False


_thread = _Thread()


def listen(listener: LoopListener) -> None:
    """Tell a listener, as long as somebody else keeps it alive, until ``unlisten``. Both may be called twice."""
    with _lock:
        if not _undo:
            _install()
        if not any(listener is known for known in _listeners):
            _listeners.add(listener)


def unlisten(listener: LoopListener) -> None:
    """Tell a listener nothing more."""
    with _lock:
        _listeners.discard(listener)
        if not _listeners:
            while _undo:
                _undo.pop()()


def _install() -> None:
    for function in (clip_grad_norm_, clip_grad_value_):
        _undo.append(patch_inside(cast(FunctionType, function), _clip))
    kinds: list[type] = [LRScheduler]
    for known in kinds:  # grows meanwhile
        children: list[type] = type.__subclasses__(known)
        kinds += [child for child in children if child not in kinds]
    for kind in kinds:
        if isinstance(kind.__dict__.get("step"), FunctionType):  # a descriptor of another kind can't be called as it lies there
            _undo.append(patch(kind, "step", _scheduler_step))
    _undo.append(patch_warnings())
    _undo.append(patch(torch.amp.GradScaler, "scale", _scale))
    _undo.append(patch(torch.amp.GradScaler, "unscale_", _unscale))


@run_plainly
def _tell(kind: Kind, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, over: bool = False) -> None:
    if not optimizer.is_paused() and not torch.compiler.is_compiling() and not is_captured():
        call = LoopCall(kind, target, args, kwargs)
        for listener in _listeners:
            (listener.returned if over else listener.called)(call)


def _run(kind: Kind, original: Callable[..., Any], target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _tell(kind, target, args, kwargs)
    result = original(*(() if target is None else (target,)), *args, **kwargs)
    _tell(kind, target, args, kwargs, over=True)
    return result


def _clip(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if args and isinstance(args[0], GeneratorType):  # model.parameters(), which a listener would use up; torch warns of an empty one
        args = (list(args[0]) or args[0], *args[1:])
    return _run("clip", original, None, args, kwargs)


def _scheduler_step(original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
    if _thread.in_scheduler or getattr(scheduler, "_is_initial", False):  # one that is made of others, or that is being made
        return original(scheduler, *args, **kwargs)
    _thread.in_scheduler = True
    try:
        return _run("scheduler", original, scheduler, args, kwargs)
    finally:
        _thread.in_scheduler = False


def _scale(original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(scaler, *args, **kwargs)
    if scaler.is_enabled():
        _tell("scale", scaler, (result,), {})
    return result


def _unscale(original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
    return _run("unscale", original, scaler, args, kwargs) if scaler.is_enabled() else original(scaler, *args, **kwargs)
