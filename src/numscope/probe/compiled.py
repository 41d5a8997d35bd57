"""Observation inside compiled graphs: a custom operator that merges a tensor's summary into a row.

Inside a graph nothing can be appended to a list at run time, so each place gets a fixed row when it is traced, and a second call in
the same step merges into it. Gradients of outputs inside a compiled graph are not visible to hooks; those of parameters and of the graph's
own outputs are.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from numscope.probe import walk
from numscope.summary.compiled import register
from numscope.summary.state import EMPTY_ROW, ROW_BYTES, Groups

if TYPE_CHECKING:
    from numscope.probe.module import Entry

CAPACITY = 8192  # rows a device: 1 MiB; places traced beyond it stay unseen


class CompiledRows:
    """Rows of the places inside compiled graphs, in the order in which they were traced."""

    def __init__(self) -> None:
        register()
        self.places: list[tuple[Entry, str, str, torch.dtype, tuple[int, ...]]] = []  # entry, slot, device, dtype, shape
        self.blocks: dict[str, Tensor] = {}

    @property
    def nbytes(self) -> int:
        return len(self.blocks) * CAPACITY * ROW_BYTES

    def allocate(self, entry: Entry, slot: str, device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> int:
        """A row for a place; -1 when there is none left. Runs while dynamo traces, never in the graph."""
        for row, place in enumerate(self.places):
            if place[0] is entry and place[1] == slot and place[2] == device:
                return row
        if len(self.places) >= CAPACITY:
            return -1
        if device not in self.blocks:
            self.blocks[device] = torch.tensor(EMPTY_ROW, dtype=torch.float64, device="cpu").repeat(CAPACITY, 1).to(device)
        self.places.append((entry, slot, device, dtype, shape))
        return len(self.places) - 1

    def read(self) -> list[tuple[Entry, list[tuple[str, list[float], torch.dtype, tuple[int, ...]]]]]:
        """What the graphs' rows hold, a module at a time, and empty them.

        Returns: for each module its places' slot, row, dtype and shape. *Cost:* one copy a device, if any graph ran.
        """
        if not self.places:
            return []
        host = {device: block[: len(self.places)].to("cpu") for device, block in self.blocks.items()}
        found: dict[int, tuple[Entry, list[tuple[str, list[float], torch.dtype, tuple[int, ...]]]]] = {}
        for row, (entry, slot, device, dtype, shape) in enumerate(self.places):
            numbers = host[device][row].tolist()
            if any(numbers[:6]):
                found.setdefault(id(entry), (entry, []))[1].append((slot, numbers, dtype, shape))
        for block in self.blocks.values():
            block[: len(self.places)] = torch.tensor(EMPTY_ROW, dtype=torch.float64, device="cpu")
        return list(found.values())

    def trace(self, entry: Entry, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """Put an observing operator into the graph for each floating-point tensor of a module call."""
        for slot, leaf in walk.leaves(args, kwargs, output):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                device = str(leaf.device)
                row = _place(self, entry, slot, device, leaf.dtype, tuple(leaf.shape))
                if row >= 0:
                    torch.ops.numscope.observe(leaf.detach(), self.blocks[device], row, int(Groups.HEALTH))


def _place(rows: CompiledRows, entry: Entry, slot: str, device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    return rows.allocate(entry, slot, device, dtype, shape)


# What torch.compiler.assume_constant_result does, which would load dynamo: 2 s that an uncompiled run need not spend.
_place._dynamo_marked_constant = True  # type: ignore[attr-defined]


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
