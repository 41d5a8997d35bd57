"""Counts of the casts that a model's GEMMs make of their operands, read once a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from numscope.inspect.sites import Site
from numscope.precision.casting.reference import NUM_CELLS
from numscope.precision.gemm.counting import takers
from numscope.precision.gemm.state import LayerState
from numscope.probe.layer_names import own_parameters
from numscope.records.layer import Layer
from numscope.summary import operand_casts


class CastCounts:
    """Has the casts of converted layers counted, in a block of cells per device. *Cost:* casts count in the pass that they make anyway."""

    def __init__(self, states: Mapping[Layer, LayerState], modules: Mapping[Layer, nn.Module]) -> None:
        self._states = states
        self._modules = modules
        self._counted: list[tuple[Site, int, list[tuple[torch.device, int]]]] = []  # site, first cell, its rows: the first that is used
        self._blocks: dict[torch.device, Tensor] = {}
        self._counting: list[LayerState] = []

    def start(self, sites: Sequence[Site]) -> None:
        """Count the casts of these sites' operands from now on, and nothing else."""
        self.stop()
        if not sites:
            return
        num_rows: dict[torch.device, int] = {}
        wanted: dict[Layer, dict[tuple[str, str, str], tuple[torch.device, int]]] = {}
        for site in sites:
            state = self._states.get(site.layer)
            if state is None:
                continue
            parameters = own_parameters(self._modules[site.layer]).values()
            device = next((p.device for p in parameters if p is not None), torch.device("cpu"))
            for (family, orientation), extra in operand_casts.EXTRAS.items():
                first = site.offset(extra.key)
                if first is None:
                    continue
                rows = wanted.setdefault(site.layer, {})
                keys = [(gemm, site.kind, family) for gemm in takers(state.plan, site.kind, orientation)]
                for key in keys:
                    if key not in rows:
                        rows[key] = device, num_rows.get(device, 0)
                        num_rows[device] = rows[key][1] + 1
                self._counted.append((site, first, [rows[key] for key in keys]))
        self._blocks = {device: self._block(device, count) for device, count in num_rows.items()}
        for layer, rows in wanted.items():
            state = self._states[layer]
            # A new mapping at each step, so that a weight that has not changed is counted again.
            state.cells = {key: self._blocks[device][row] for key, (device, row) in rows.items()}
            self._counting.append(state)

    def _block(self, device: torch.device, num_rows: int) -> Tensor:
        """Empty cells: those of an earlier step if there are enough of them."""
        known = self._blocks.get(device)
        if known is not None and len(known) >= num_rows:
            return known.zero_()
        with torch.inference_mode(False):
            return torch.zeros(num_rows, NUM_CELLS, dtype=torch.float64, device=device)

    def read(self) -> Iterator[tuple[Site, int, list[float]]]:
        """What has been counted: site, its first cell, cells. *Cost:* one copy per device."""
        rows = {device: block.tolist() for device, block in self._blocks.items()} if self._counted else {}
        for site, first, places in self._counted:
            cells = next((cells for device, row in places if (cells := rows[device][row])[0]), None)
            if cells is not None:
                yield site, first, cells

    def stop(self) -> None:
        """Count nothing."""
        for state in self._counting:
            state.cells = None
        self._counting = []
        self._counted = []
