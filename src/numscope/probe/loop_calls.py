"""Calls of a training loop's own: clipping, a scheduler's step, GradScaler's scaling and unscaling, ``load_state_dict`` of a module, a
sampler's epoch, a save.

Torch has no hooks for them, so the optimizer probe has their functions patched while any listener is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal, Protocol, cast

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DistributedSampler, WeightedRandomSampler

from numscope.probe.patching import patch, patch_inside
from numscope.probe.saves import hear_saves

_num_loads = 0
_clips = False


def num_loads() -> int:
    """How often modules of this process were loaded while somebody listened."""
    return _num_loads


def clips() -> bool:
    """Whether somebody has clipped gradients while somebody listened."""
    return _clips


CLIPPING = (clip_grad_norm_, clip_grads_with_norm_, clip_grad_value_)
Kind = Literal["clip", "scheduler", "scale", "unscale", "load", "sample", "save"]


@dataclass(frozen=True, slots=True)
class LoopCall:
    """A call of a function of the loop, before it runs, but for ``scale``, ``load`` and ``save``.

    Args:
        kind: ``clip``: of gradients, by norm or value; ``scheduler``: its step; ``scale``: of a loss; ``unscale``: of gradients;
            ``load``: ``load_state_dict`` of a module, or a checkpoint's into tensors; ``sample``: an epoch of a sampler;
            ``save``: a file was written.
        target: the scheduler, the scaler, the module or the sampler; None for ``clip``, ``save`` and a load into tensors.
        args: what it was called with, by position; of ``scale`` after what it returns; of ``load`` what is loaded, and what it returns;
            of ``save`` how many elements of floating-point tensors, ``inf`` where a whole checkpoint was.
        kwargs: and by name.
    """

    kind: Kind
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def given(self, position: int, name: str) -> Any:
        """An argument, however it was given; None without it."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)


class _LoopThread(threading.local):
    in_scheduler = in_clip = False


_thread = _LoopThread()


class Tell(Protocol):
    """Is told of calls."""

    def __call__(self, kind: Kind, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, over: bool = False) -> None:
        """A function of the loop is about to run, or, with ``over`` and for ``scale``, has run. The rest is as in ``LoopCall``."""


def hear_loop(tell: Tell, step: Callable[..., Any], update: Callable[..., Any]) -> list[Callable[[], None]]:
    """Have these calls told, and GradScaler's ``step`` and ``update`` run by these functions. Returns: what ends it."""

    def run(kind: Kind, original: Callable[..., Any], target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tell(kind, target, args, kwargs)
        result = original(*(() if target is None else (target,)), *args, **kwargs)
        tell(kind, target, args, kwargs, over=True)
        return result

    def clip(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        global _clips
        _clips = True
        if args and isinstance(args[0], Iterator):  # model.parameters(), which a listener would use up; torch warns of an empty one
            args = (list(args[0]) or args[0], *args[1:])
        elif isinstance(kwargs.get("parameters"), Iterator):
            kwargs = {**kwargs, "parameters": list(kwargs["parameters"]) or kwargs["parameters"]}
        if _thread.in_clip:  # torch's own, by a norm that it has computed
            return original(*args, **kwargs)
        _thread.in_clip = True
        try:
            return run("clip", original, None, args, kwargs)
        finally:
            _thread.in_clip = False

    def step_scheduler(original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        if _thread.in_scheduler or getattr(scheduler, "_is_initial", False):  # one that is made of others, or that is being made
            return original(scheduler, *args, **kwargs)
        _thread.in_scheduler = True
        try:
            return run("scheduler", original, scheduler, args, kwargs)
        finally:
            _thread.in_scheduler = False

    def scale(original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(scaler, *args, **kwargs)
        if scaler.is_enabled():
            tell("scale", scaler, (result, *args), kwargs)
        return result

    def unscale(original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        return run("unscale", original, scaler, args, kwargs) if scaler.is_enabled() else original(scaler, *args, **kwargs)

    def load(original: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(module, *args, **kwargs)
        given = args[0] if args else kwargs.get("state_dict")
        global _num_loads
        _num_loads += 1
        tell("load", module, (given, result), {"assign": args[2] if len(args) > 2 else kwargs.get("assign")})
        return result

    def sample(original: Callable[..., Any], sampler: Any) -> Any:
        tell("sample", sampler, (), {})
        return original(sampler)

    kinds: list[type] = [LRScheduler]
    for known in kinds:  # grows meanwhile
        children: list[type] = type.__subclasses__(known)
        kinds += [child for child in children if child not in kinds]
    schedulers = [kind for kind in kinds if isinstance(kind.__dict__.get("step"), FunctionType)]  # another descriptor can't be called
    return [
        *(patch_inside(cast(FunctionType, function), clip) for function in CLIPPING),
        *(patch(kind, "step", step_scheduler) for kind in schedulers),
        patch(nn.Module, "load_state_dict", load),
        *(patch(kind, "__iter__", sample) for kind in (WeightedRandomSampler, DistributedSampler)),
        patch(torch.amp.GradScaler, "scale", scale),
        patch(torch.amp.GradScaler, "unscale_", unscale),
        patch(torch.amp.GradScaler, "step", step),
        patch(torch.amp.GradScaler, "update", update),
        hear_saves(tell),
    ]
