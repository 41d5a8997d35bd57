"""Saves of checkpoints: by ``torch.save``, ``torch.distributed.checkpoint`` and safetensors, whichever library of a script's calls them;
and loads of the second, which writes into tensors that it is given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from math import inf, prod
from typing import Any

import torch
from torch import nn

from numscope.probe.patching import patch

_DEPTH = 6  # of nested mappings and lists
# Functions that all of a package's ways come through; in async_save the state is copied before another thread writes it.
_CHECKPOINT = "torch.distributed.checkpoint"
_LATE = (
    (f"{_CHECKPOINT}.state_dict_saver", "_save_state_dict"),
    (_CHECKPOINT, "async_save"),
    ("safetensors.torch", "serialize_file"),
    (f"{_CHECKPOINT}.state_dict_loader", "_load_state_dict"),
)

_heard: set[str] = set()  # of these


def hear_saves(tell: Callable[..., None]) -> Callable[[], None]:
    """Have ``torch.save`` told as a call of kind ``save``. Returns: what ends it."""
    return patch(torch, "save", _saver(tell, is_checkpoint=False))


def hear_late_saves(tell: Callable[..., None]) -> list[Callable[[], None]]:
    """The same for packages that are loaded, and were not when this was called before. Returns: what ends it."""
    found: list[Callable[[], None]] = []
    for module, name in _LATE:
        if name in vars(sys.modules.get(module) or object) and (key := f"{module}.{name}") not in _heard:
            _heard.add(key)
            ours = _loader(tell) if "load" in name else _saver(tell, is_checkpoint=module.startswith(_CHECKPOINT))
            undo = patch(sys.modules[module], name, ours)
            found += [undo, partial(_heard.discard, key)]
    return found


def _saver(tell: Callable[..., None], *, is_checkpoint: bool) -> Callable[..., Any]:
    def save(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        tell("save", None, (inf if is_checkpoint else _num_elements((args, kwargs)),), {})
        return result

    return save


def _loader(tell: Callable[..., None]) -> Callable[..., Any]:
    def load(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        tell("load", None, (None, None), {})
        return result

    return load


def _num_elements(saved: Any, depth: int = _DEPTH) -> int:
    """How many elements of floating-point tensors a nest of what is saved has. *Cost:* 1 µs a value."""
    if isinstance(saved, torch.Tensor):
        return saved.numel() if saved.is_floating_point() else 0
    if isinstance(saved, nn.Module):
        return sum(map(_num_elements, saved.parameters()))
    if type(saved).__name__ == "TensorSpec":  # safetensors'
        return prod(saved.shape)
    if isinstance(saved, Mapping) and "data" in saved and "shape" in saved:  # up to its version 0.7
        return prod(saved["shape"])
    if not depth or not isinstance(saved, Mapping | list | tuple):
        return 0
    return sum(_num_elements(one, depth - 1) for one in (saved.values() if isinstance(saved, Mapping) else saved))
