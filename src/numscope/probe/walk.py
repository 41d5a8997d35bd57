"""Tensors inside nested values, each with its slot's name; which of them stands for all."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterable, Mapping
from types import MemberDescriptorType
from typing import Any

import torch
from torch import Tensor, nn

from numscope.probe.calls import say_unread
from numscope.records.faults import ours

log = logging.getLogger("numscope")

# What a slot holds that is no tensor; the guide's words.
NONE = "None"
NOT_A_TENSOR = "not a tensor"
_SEQUENCES = (tuple, list)
_KNOWN = ("builtins", "tensordict", "torch", "transformers")  # packages whose mappings hold what they give
MAX_DEPTH = 8  # deeper than any output seen; a cycle ends here


def visit(value: Any, slot: str, see: Callable[[str, Any], None], depth: int = MAX_DEPTH, seen: set[int] | None = None) -> None:
    """Call ``see(slot, leaf)`` for each leaf of a nest of tuples, lists, mappings and dataclasses, each of which is walked once.

    A leaf is a tensor, None, or a value of any other type. Slots are named as the guide names them: ``output[0][1]``, and
    ``output[logits]`` for mappings, dataclasses and ModelOutput. An empty container is one leaf that is no tensor.
    """
    if value is None or isinstance(value, Tensor):
        see(slot, value)
        return
    if seen is not None and id(value) in seen:
        return
    items: Iterable[tuple[object, Any]] = ()
    container = value
    if isinstance(value, _SEQUENCES):
        if type(value) not in _SEQUENCES and not torch.compiler.is_compiling():  # without the methods of a subclass
            value = list.copy(value) if isinstance(value, list) else tuple.__getitem__(value, slice(None))
        empty = not (value and depth)
        if not empty:
            items = enumerate(value)
    else:
        named = _named_items(value) if depth else []
        items, empty = named, not named
    if empty:  # asked of lists: to dynamo of torch 2.10 the truth of an enumeration depends on data
        see(slot, value)
        return
    if not torch.compiler.is_compiling():  # a graph would be guarded by the id of a container that is new in each call
        seen = set() if seen is None else seen
        seen.add(id(container))
    for key, item in items:
        if isinstance(item, Tensor):  # most are; saves a call
            see(f"{slot}[{key}]", item)
        else:
            visit(item, f"{slot}[{key}]", see, depth - 1, seen)


def _named_items(value: Any) -> list[tuple[str, Any]]:
    """Of a mapping or dataclass: what it holds, read without its own methods, which may load, count or compute. None of anything else."""
    try:
        if isinstance(value, Mapping):
            return [(str(key), item) for key, item in _held(value)]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            found = ((f.name, _field(value, f.name)) for f in dataclasses.fields(value))
            return [(name, item) for name, item in found if item is not None]
    except ours() as error:
        log.debug("not walked: %s: %s", type(value).__name__, error)
    return []


def _held(value: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
    if torch.compiler.is_compiling():
        return value.items()
    if isinstance(value, dict):
        return OrderedDict.items(value) if isinstance(value, OrderedDict) else dict.items(value)
    data = object.__getattribute__(value, "__dict__").get("data") if isinstance(value, UserDict) else None
    if isinstance(data, dict):
        return _held(data)
    if type(value).__module__.partition(".")[0] in _KNOWN:
        return value.items()
    say_unread(f"what {type(value).__name__} holds", "this mapping may load or compute it when asked")
    return ()


def _field(value: Any, name: str) -> Any:
    if torch.compiler.is_compiling() or type(value).__module__.partition(".")[0] in _KNOWN:
        return getattr(value, name, None)
    static = inspect.getattr_static(type(value), name, _field)
    try:
        if isinstance(static, MemberDescriptorType):
            return static.__get__(value)
        held = object.__getattribute__(value, "__dict__")
    except ours(AttributeError):  # not set; no such
        return None
    if name in held:
        return held[name]
    if static is _field or isinstance(static, property):
        say_unread(f"{name} of {type(value).__name__}", "it may be computed when asked for")
        return None
    return static


def tensors(value: Any, slot: str) -> list[tuple[str, Tensor]]:
    """The tensors of a nest with their slots, in order."""
    found: list[tuple[str, Tensor]] = []

    def see(name: str, leaf: Any) -> None:
        if isinstance(leaf, Tensor):
            found.append((name, leaf))

    visit(value, slot, see)
    return found


def leaves(args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> list[tuple[str, Any]]:
    """A module call's leaves: ``input[i]…``, ``input[name]…`` for keyword arguments, ``output…``."""
    found: list[tuple[str, Any]] = []

    def see(name: str, leaf: Any) -> None:
        found.append((name, leaf))

    for i, value in enumerate(args):
        visit(value, f"input[{i}]", see)
    for key, value in kwargs.items():
        if value is not None and not isinstance(value, bool | int | float | str):  # flags are no inputs worth a line
            visit(value, f"input[{key}]", see)
    visit(output, "output", see)
    return found


def is_inexact(tensor: Tensor) -> bool:
    """Whether a tensor is floating-point or complex."""
    return tensor.is_floating_point() or tensor.is_complex()


def first_inexact(value: Any) -> Tensor | None:
    """The first floating-point or complex tensor of a nest."""
    if isinstance(value, Tensor):
        return value if is_inexact(value) else None
    return next((t for _, t in tensors(value, "") if is_inexact(t)), None)


def first_input(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    """The tensor that stands for a call's input: the first floating-point one."""
    found = first_inexact(args) if args else None
    return first_inexact(kwargs) if found is None and kwargs else found


def own_base(output: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """The tensor that a module computed, if it returns a view of all of it, as Linear does for inputs with three dimensions.

    A module that then works in place gives the view another past, and a hook on it would hear nothing. Not where it is an input's memory.
    """
    if type(output) is not Tensor or not output._is_view() or not output.is_contiguous():
        return None
    base: Tensor | None = output._base
    if base is None or base.grad_fn is None or base.numel() != output.numel() or not base.is_contiguous():
        return None
    inputs = (*args, *kwargs.values())
    return None if any(isinstance(t, Tensor) and (t is base or t._base is base) for t in inputs) else base


def attention_in(module: nn.Module, output: Any) -> Tensor | None:
    """The attention probabilities that a module returns; None if it returns nothing that can be them.

    They are the output of a module whose class's name has ``softmax`` in it, else the last tensor of a tuple after the first, if its last
    dimension but one is as long as some dimension of the first. Tensors that are nested deeper, such as a cache, are none.
    """
    if isinstance(output, Tensor):
        is_softmax = "softmax" in type(module).__name__.lower()
        return output if is_softmax and output.is_floating_point() else None
    items: Iterable[Any] = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    found = [item for item in items if isinstance(item, Tensor)]
    if len(found) < 2 or found[-1].dim() < 2 or not found[-1].is_floating_point() or found[-1].shape[-2] not in found[0].shape[:-1]:
        return None
    return found[-1]
