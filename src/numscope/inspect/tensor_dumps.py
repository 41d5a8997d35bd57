"""The feature ``dump_tensors`` on one model: which tensors and casts of a step are written to files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor

from numscope.config.plan import Switch
from numscope.inspect.recorder import Recorder
from numscope.precision.casting.cast import Cast, cast
from numscope.precision.gemm.dumps import Dumps
from numscope.precision.gemm.state import LayerState
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.layer import Layer

DUMP = "dump_tensors"


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
        what = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
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
