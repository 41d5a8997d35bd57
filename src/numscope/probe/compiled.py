"""Observation inside compiled graphs: a custom operator that merges a tensor's summary into a row.

Inside a graph nothing can be appended to a list at run time, so each place gets a fixed row when it is traced, and a second call in
the same step merges into it. Gradients of outputs inside a compiled graph are not visible to hooks; those of parameters and of the graph's
own outputs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from numscope.probe import walk
from numscope.summary.compiled import register
from numscope.summary.state import EMPTY_ROW, ROW_BYTES, Groups

if TYPE_CHECKING:
    from numscope.probe.entry import Entry

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
