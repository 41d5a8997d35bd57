"""Names of a model's modules and parameters, as the model's author knows them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

from torch import Tensor, nn

from numscope.distributed.megatron import is_megatrons
from numscope.probe import keras
from numscope.records.places import file_of, is_installed
from numscope.records.site import WRAPPER_SEGMENTS


def peel(model: nn.Module) -> nn.Module:
    """The module inside DataParallel and DistributedDataParallel: its own call is the one to watch and to do again.

    So is that of a module which a library has put into a private one of its own, as solvers do at each call. A compiled wrapper
    (``torch.compile(model)``) stays: its call is the last that runs as plain Python.
    """
    while True:
        inner = getattr(model, "module", None) if type(model).__name__ in WRAPPER_SEGMENTS["module"] else _inside_private(model)
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _inside_private(model: nn.Module) -> nn.Module | None:
    """The user's module in a wrapper without weights, private to an installed package other than torch."""
    cls, parts = type(model), list(model._modules.values())
    if not cls.__name__.startswith("_") or len(parts) != 1 or parts[0] is None or model._parameters or model._buffers:
        return None
    is_librarys = cls.__module__.partition(".")[0] != "torch" and is_installed(file_of(cls))
    return None if not is_librarys or (is_installed(file_of(type(parts[0]))) and not _inside_private(parts[0])) else parts[0]


def has_identity(module: nn.Module) -> bool:
    """Whether a module is found in dicts as the object that it is. torchmetrics' are found by their values, which change."""
    return type(module).__hash__ is object.__hash__


def qualified_names(root: nn.Module) -> dict[nn.Module, str]:
    """Each module below ``root`` that has an identity once, with its first name; segments that only wrappers own are left out."""
    names: dict[nn.Module, str] = {}
    _descend(root, "", names)
    return names


def _descend(module: nn.Module, name: str, names: dict[nn.Module, str]) -> None:
    """No function inside the other: it would hold itself, and with it the modules, until the collector comes."""
    if not has_identity(module) or module in names:
        return
    names[module] = name
    owner = {cls.__name__ for cls in type(module).__mro__}
    first = _first_number(module)
    for segment, layer in keras.children(module):
        _descend(layer, f"{name}.{segment}" if name else segment, names)
    for segment, child in module._modules.items():
        if child is None:
            continue
        if first:
            segment = str(first + int(segment))
        transparent = not owner.isdisjoint(WRAPPER_SEGMENTS.get(segment, frozenset()))
        _descend(child, name if transparent else f"{name}.{segment}" if name else segment, names)


def _first_number(module: nn.Module) -> int:
    """Number of a list's first layer in the whole model: a pipeline stage of Megatron's holds some of the layers, which know theirs."""
    if not isinstance(module, nn.ModuleList) or not len(module) or not is_megatrons(module[0]):
        return 0
    numbers = [getattr(layer, "layer_number", None) for layer in module]
    first = numbers[0]
    if not isinstance(first, int) or numbers != list(range(first, first + len(numbers))):
        return 0
    return first - 1  # they count from 1


def class_name(module: nn.Module) -> str:
    """The class as its author wrote it: fully_shard swaps in a subclass ``FSDPX`` of ``X``."""
    cls = type(module)
    if cls.__name__ == "OptimizedModule" and isinstance(inner := getattr(module, "_orig_mod", None), nn.Module):
        return class_name(inner)
    if cls.__name__.startswith("FSDP") and is_sharded(module):
        for parent in cls.__mro__[1:]:
            if parent.__name__ != "FSDPModule":
                return parent.__name__
    if cls.__name__.startswith("Parametrized") and cls.__mro__[1] is not nn.Module:
        return cls.__mro__[1].__name__
    return cls.__name__


def free_name(name: str, taken: Collection[str]) -> str:
    """A name with a number behind it where others have it: ``Net``, ``Net_2``."""
    return next(one for n in itertools.count(1) if (one := name if n == 1 else f"{name}_{n}") not in taken)


def is_sharded(module: nn.Module) -> bool:
    """Whether fully_shard was called on a module."""
    return any(cls.__name__ == "FSDPModule" for cls in type(module).__mro__)


def named_state(names: Mapping[nn.Module, str], buffers: bool = True) -> list[tuple[str, str, Tensor]]:
    """Each parameter and, if wanted, buffer once: (module name, slot, tensor), in the modules' order."""
    seen: set[int] = set()
    found: list[tuple[str, str, Tensor]] = []
    for module, name in names.items():
        for slot, tensor in (*keras.own_weights(module).items(), *(module._buffers.items() if buffers else ())):
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found.append((name, slot, tensor))
    return found
