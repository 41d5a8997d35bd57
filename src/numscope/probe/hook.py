"""Hooks that nobody but the tool knows of: no copy of a model has them, in memory or in a file, and the ids of others do not change."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.modules import transformer
from torch.utils.hooks import RemovableHandle

ids = count(-1, -1)  # torch counts its own upward from 0, and they get into the files of models that have hooks


def put(hooks: dict[int, Any], hook: Callable[..., Any]) -> Callable[[], None]:
    """Add a hook to one of torch's dicts of hooks. Returns: what removes it; safe to call twice."""
    key = next(ids)
    hooks[key] = hook
    return partial(hooks.pop, key, None)


def has_others_hooks(owner: Mapping[str, Any]) -> bool:
    """Whether a hook of others is called around a module's call: one of the module's, or of all modules; by its or torch's attributes."""
    dicts = [hooks for name in _AROUND for hooks in (owner.get(name), getattr(torch_module, f"_global{name}", None))]
    return any(key >= 0 for hooks in dicts if isinstance(hooks, dict) for key in hooks)


_AROUND = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def hook_gradient(tensor: Tensor, hook: Hook) -> Callable[[], None]:
    """Call a hook with the tensor's gradient, as ``Tensor.register_hook`` does. Returns: what removes it; safe to call twice."""
    if tensor._backward_hooks is None:
        tensor._backward_hooks = OrderedDict()
        if tensor.grad_fn is not None:
            tensor.grad_fn._register_hook_dict(tensor)
    return put(tensor._backward_hooks, hook)


GONE: Any = object()  # in an output's place: the hook was taken away while the call was at work


class Hook(partial[Any]):
    """A hook on a tensor or a module."""

    __torch_unserializable__ = True  # no warning from torch when a tensor that has it is saved


def hook_node(register: Callable[[Any], Any], hook: Callable[..., Any]) -> Callable[[], None]:
    """Put a hook on a node of a graph by its ``register_hook`` or ``register_prehook``, and give back the id that torch takes for it.

    Returns: what removes it; safe to call twice.
    """
    handle = register(hook)
    hooks = handle.hooks_dict_ref()
    key = next(ids)
    hooks[key] = hooks.pop(handle.id)
    if RemovableHandle.next_id == handle.id + 1:
        RemovableHandle.next_id = handle.id
    return partial(hooks.pop, key, None)


class HookDict(OrderedDict[int, Any]):
    """A module's dict of hooks, with those of the tool under negative ids. Its copy, in memory or in a file, is the dict without them.

    Args:
        was: the dict in whose place it stands.
    """

    def __init__(self, was: OrderedDict[int, Any]) -> None:
        super().__init__(was)
        self.was = was
        self.owned: object = None

    def move_to_end(self, key: int, last: bool = True) -> None:
        """In the plain dict inside too: by its order torch 2.10 finds a hook for a compiled graph's guards."""
        if next(reversed(self) if last else iter(self)) != key:
            for other in [key] if last else [other for other in self if other != key]:
                self[other] = self.pop(other)

    def users(self) -> OrderedDict[int, Any]:
        """The hooks that are not the tool's."""
        return OrderedDict((key, hook) for key, hook in self.items() if key >= 0)

    def values(self) -> Any:
        """Of the hooks that are not the tool's: torch calls hooks by ``items`` and lists them, to script a module, by ``values``."""
        return self.users().values()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.users().__reduce_ex__(protocol)


def _num_hooks(items: Any) -> int:
    return len(items.users()) if isinstance(items, HookDict) else len(items)


def stay_fused() -> Callable[[], None]:
    """Have torch's fused encoder layers count the hooks on their parts without the tool's: they compute other bits where there are any.

    Returns: what ends it.
    """
    vars(transformer)["len"] = _num_hooks
    return partial(vars(transformer).pop, "len", None)


class _Following(HookDict):
    """In the place of a dict with hooks: handles of these hooks know that dict by itself, and what they remove from it goes here too."""

    def __init__(self, was: OrderedDict[int, Any]) -> None:
        super().__init__(was)
        self._shared = list(was)

    def items(self) -> Any:
        if len(self.was) != len(self._shared):
            for key in self._shared:
                if key not in self.was:
                    self.pop(key, None)
            self._shared = list(self.was)
        return super().items()


def _own(module: nn.Module, place: str) -> HookDict:
    hooks = module.__dict__[place]
    if not isinstance(hooks, HookDict):
        hooks = module.__dict__[place] = (_Following if hooks else HookDict)(hooks)
    return hooks


def _disown(module: nn.Module, place: str) -> None:
    """Put the plain dict back, unless somebody else has something in this one, or a handle of it."""
    hooks = module.__dict__.get(place)
    if isinstance(hooks, HookDict) and hooks.owned is None and not any(key < 0 for key in hooks) and not weakref.getweakrefcount(hooks):
        left = dict(hooks.items())
        hooks.was.clear()
        hooks.was.update(left)
        module.__dict__[place] = hooks.was


_CALLS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


def can_be_hooked(module: nn.Module) -> bool:
    """A scripted module runs no Python; the module around it sees what goes in and out."""
    return not isinstance(module, torch.jit.ScriptModule)


def new_id() -> int:
    """A key for hooks on modules, which no hook of others has."""
    return next(ids)


def hook_calls(module: nn.Module, key: int, before: Hook, after: Hook, *, always: bool, first: bool) -> None:
    """Put a hook before a module's calls and one after them, or put others in their place.

    Args:
        key: of ``new_id``; once a module.
        before: is called with (module, args, kwargs); once more without the last where a call has begun before ``unhook_calls``.
        after: is called with (module, args, kwargs, output), and likewise.
        always: call ``after`` too where the module's call raises.
        first: call ``after`` before all other hooks, else after them.
    """
    before_hooks, before_kwargs, after_hooks, after_kwargs, always_called = (_own(module, place) for place in _CALLS)
    before_kwargs[key] = after_kwargs[key] = True
    before_hooks[key], after_hooks[key] = before, after
    after_hooks.move_to_end(key, last=not first)
    if always:
        always_called[key] = True
    else:
        always_called.pop(key, None)


def unhook_calls(module: nn.Module, key: int) -> None:
    """Take away what ``hook_calls`` has put; nothing where nothing is."""
    for place in _CALLS:
        module.__dict__.get(place, {}).pop(key, None)
        _disown(module, place)


# Dicts of hooks that every module has and few use: in a dict for calls, even an empty one of a class of ours would concern compiled code.
_SPARE = ("_load_state_dict_post_hooks", "_state_dict_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks")


def owned_by(model: nn.Module, item: object) -> Callable[[], None]:
    """Let a model keep an object alive. Nothing of it gets into the model's copies, files, or calls.

    Returns: what ends it; safe to call twice.
    """
    place = next((place for place in _SPARE if type(model.__dict__[place]) is OrderedDict and not model.__dict__[place]), None)
    if place is None:  # in use by others, all four: whoever holds the object keeps it alive, and the hooks that it puts on the model do
        return lambda: None
    owning = _own(model, place)
    owning.owned = item
    known = weakref.ref(model)

    def end() -> None:
        owning.owned = None
        if (model := known()) is not None:
            _disown(model, place)

    return end
