"""Counts of the casts that a model's GEMMs make, read once a step, and files of ``dump_tensors``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from numscope.config.plan import Switch
from numscope.inspect.recorder import Recorder
from numscope.inspect.sites import PlannedSite
from numscope.precision.casting.cast import Cast, cast
from numscope.precision.casting.reference_cast import NUM_CELLS
from numscope.precision.gemm.counting import takers
from numscope.precision.gemm.dumps import Dumps
from numscope.precision.gemm.layer_state import LayerState
from numscope.probe.layer_names import own_parameters
from numscope.records.errors import UsageError
from numscope.records.faults import ours, told
from numscope.records.layer import Layer
from numscope.summary import operand_casts

DUMP = "dump_tensors"


class CastCounts:
    """Has the casts of converted layers counted, in a block of cells per device. *Cost:* casts count in the pass that they make anyway."""

    def __init__(self, states: Mapping[Layer, LayerState], modules: Mapping[Layer, nn.Module]) -> None:
        self._states = states
        self._modules = modules
        self._counted: list[
            tuple[PlannedSite, int, list[tuple[torch.device, int]]]
        ] = []  # site, first cell, its rows: the first that is used
        self._blocks: dict[torch.device, Tensor] = {}
        self._counting: list[LayerState] = []

    def start(self, sites: Sequence[PlannedSite]) -> None:
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

    def read(self) -> Iterator[tuple[PlannedSite, int, list[float]]]:
        """The counts: site, its first cell, cells. *Cost:* one copy per device."""
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


class TensorDumps:
    """Writes what GEMMs take at the steps of a schedule, and other tensors on request. A failure ends the dumps, not the training."""

    def __init__(self, switches: Sequence[tuple[Switch, Sequence[Layer]]], states: Mapping[Layer, LayerState], recorder: Recorder) -> None:
        self._wanted = [
            (switch, layer, states[layer])
            for switch, layers in switches
            if switch.feature == DUMP and switch.settings["quantized_tensor"]
            for layer in layers
            if layer in states
        ]
        self._recorder = recorder
        self._observed: list[LayerState] = []
        self._files: Dumps | None = None
        self._has_failed = False
        self._step = -1
        self.prefix = ""  # before layers' names

    def start(self, step: int) -> None:
        """Have the casts of this step written whose schedule wants it, and no others."""
        self.stop()
        self._step = step
        for switch, layer, state in self._wanted:
            if switch.schedule.active(step) and state.observer is None:
                state.observer = partial(self._write_cast, layer, state, switch.settings["tensors"])
                self._observed.append(state)

    def stop(self) -> None:
        """Write no casts."""
        for state in self._observed:
            state.observer = None
        self._observed = []

    def write(self, layer: Layer, tensor: str, parts: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        """Write tensors, and what else the file records in words."""
        if self._has_failed:
            return
        if self._recorder.log_dir is None:
            self._has_failed = True
            self._recorder.say(f"{DUMP} writes nothing without a folder. Name one: log_dir=, --log-dir", logging.WARNING)
            return
        self._files = self._files or Dumps(self._recorder.log_dir, self._recorder.rank)
        try:
            self._files.write(self._step, self.prefix + layer.name, tensor, parts, about)
        except ours() as error:  # a full disk, a tensor without memory
            self._fail(error)

    def _write_cast(self, layer: Layer, state: LayerState, tensors: Sequence[str], gemm: str, operand: str, x: Tensor, made: Cast) -> None:
        """Write what a GEMM takes: its scales, its codes where they can be had, and its values where those were made."""
        if operand not in tensors or self._has_failed:
            return
        try:
            codes = made.codes if made.codes is not None else _codes_of(state, operand, x, made)
        except ours() as error:  # no memory for it
            self._fail(error)
            return
        parts = {"scale_inv": made.scale_inv}
        parts |= {name: part for name, part in (("codes", codes), ("values", made.values)) if part is not None}
        about = {"gemm": gemm, "how": made.how.text(), "format": made.how.format.name, "columnwise": str(made.columnwise).lower()}
        self.write(layer, f"{operand}_{gemm}", parts, about)

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        what = str(error) if isinstance(error, UsageError) else told(error)
        self._recorder.say(f"{DUMP} is off from here on: {what}", logging.ERROR)


def _codes_of(state: LayerState, operand: str, x: Tensor, made: Cast) -> Tensor | None:
    """The codes of a cast that gave values alone, by a second cast. None where that could give others, or would have to ask other ranks."""
    how = made.how
    history = state.histories.get((operand, how.format.name)) if how.delayed else None
    asks_ranks = not how.delayed and getattr(state.in_force, "reduce_amax", False)
    if how.rounding == "stochastic" or asks_ranks or (how.delayed and history is None):
        return None
    scale = None if history is None else history.scale
    return cast(x, how, scale=scale, columnwise=made.columnwise, values=False, codes=True).codes
