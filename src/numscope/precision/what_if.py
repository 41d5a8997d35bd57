"""What casting a model's linear layers to other formats would do to their operands, measured while it trains as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.formats import format_of
from numscope.precision.cast import cast, empty_cells
from numscope.precision.delayed import History, advance_all
from numscope.precision.gemms import COLUMNWISE
from numscope.precision.scaling import PER_TENSOR, How, Scaling
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.layer_names import layers_of
from numscope.probe.layers import LayerProbe, LayerSites
from numscope.probe.naming import class_name
from numscope.summary.dispatch import summarize
from numscope.summary.state import Groups
from numscope.summary.unwrap import plain

OPERANDS = ("activation", "weight", "gradient")
_MX = Scaling("block", (1, 32), scale_format="e8m0")
_TILES = {operand: Scaling("block", (128, 128) if operand == "weight" else (1, 128)) for operand in OPERANDS}
ONE = 1.0  # the scale of formats that are cast to as they are


def candidates(operand: str) -> dict[str, tuple[How, float | None]]:
    """The formats that an operand is measured in, from the one whose GEMMs most machines have to the widest: how, and a fixed scale."""
    e4m3, e5m2 = format_of("e4m3"), format_of("e5m2")
    return {
        "e4m3": (How(e4m3, PER_TENSOR), None),
        "e5m2": (How(e5m2, PER_TENSOR), None),
        "block": (How(e4m3, _TILES[operand]), None),
        "mxfp8": (How(e4m3, _MX), None),
        "bf16": (How(format_of("bf16"), saturate=False), ONE),
        "fp16": (How(format_of("fp16"), saturate=False), ONE),
    }


class _Tried:
    """One cast of one operand, tried at each step."""

    __slots__ = ("cells", "columnwise", "history", "how", "scale", "signal")

    def __init__(self, how: How, columnwise: bool, scale: float | None, history: History | None) -> None:
        self.how, self.columnwise, self.scale, self.history = how, columnwise, scale, history
        self.cells: Tensor | None = None
        self.signal = 0.0

    def see(self, x: Tensor, signal: float) -> None:
        if self.cells is None:
            self.cells = empty_cells(x.device)
        scale: Tensor | float | None = self.scale
        cells: Tensor | None = self.cells
        if self.history is not None:
            scale = self.history.scale
            if self.history.num_steps == 0:  # its scale is 1 until a step is over: of no step but the first
                cells = None
        cast(
            x,
            self.how,
            scale=scale,
            columnwise=self.columnwise,
            values=False,
            cells=cells,
            amax=None if self.history is None else self.history.amax,
        )
        if cells is not None:
            self.signal += signal

    def numbers(self) -> dict[str, float]:
        numel, underflow, overflow, error = self.cells.tolist()[:4] if self.cells is not None else (0.0,) * 4
        return {"numel": numel, "num_underflow": underflow, "num_overflow": overflow, "square_error": error, "square_sum": self.signal}


class WhatIf(optimizer_probe.StepListener):
    """Measures, from ``add`` to ``close``.

    Args:
        plan: what a recipe makes of a layer's GEMMs: (GEMM, operand) → how, None in high precision.
        delayed: a new history for one operand under that recipe.

    *Cost:* a dozen passes over each operand of each linear layer and a sync for each: it is for a few steps.
    """

    def __init__(
        self,
        plan: Mapping[tuple[str, str], How | None],
        delayed: Callable[[How, torch.device], History],
    ) -> None:
        self._plan = plan
        self._delayed = delayed
        self._sites: list[tuple[str, str]] = []  # layer, operand
        self._tried: dict[int, dict[str, _Tried]] = {}
        self._seen: dict[int, list[float]] = {}  # by site: elements, nan, inf, largest magnitude
        self._weights: list[tuple[int, nn.Module]] = []
        self._probes: list[LayerProbe] = []
        self.classes: dict[str, str] = {}
        self.failed: str | None = None

    def add(self, model: nn.Module) -> None:
        """Measure a model from its next forward on."""
        if not self._probes:
            optimizer_probe.listen(self)
        armed: dict[nn.Module, LayerSites] = {}
        for module, layer in layers_of(model).items():
            if is_linear(module) and layer.name not in self.classes:
                self.classes[layer.name] = layer.cls
                first = len(self._sites)
                self._sites += [(layer.name, operand) for operand in OPERANDS]
                armed[module] = LayerSites(activation=first, gradient=first + 2)
                self._weights.append((first + 1, module))
        probe = LayerProbe(self._see, self._fail)
        probe.arm(armed)
        self._probes.append(probe)

    def close(self) -> None:
        for probe in self._probes:
            probe.disarm()
        optimizer_probe.unlisten(self)

    def numbers(self) -> dict[str, Any]:
        """What was measured, as JSON has it."""
        layers: dict[str, Any] = {}
        for site, (layer, operand) in enumerate(self._sites):
            if site in self._seen:
                numel, num_nan, num_inf, amax = self._seen[site]
                casts = {key: tried.numbers() for key, tried in self._tried.get(site, {}).items()}
                operands = layers.setdefault(layer, {"class": self.classes[layer], "operands": {}})["operands"]
                operands[operand] = {"numel": numel, "num_nan": num_nan, "num_inf": num_inf, "amax": amax, "casts": casts}
        plan: dict[str, dict[str, str | None]] = {gemm: {} for gemm, _ in self._plan}
        for (gemm, operand), how in self._plan.items():
            plan[gemm][operand] = None if how is None else key_of(how, gemm, operand)
        return {"plan": plan, "layers": layers, "failed": self.failed}

    # ---- what the probes tell

    def before_backward(self, roots: Sequence[Tensor]) -> None: ...

    def after_gradients(self, gradients: Sequence[Tensor]) -> None: ...

    def before_step(self, optimizer: Optimizer) -> None:
        if self.failed is None:
            try:
                for site, module in self._weights:
                    weight = module._parameters.get("weight")
                    if weight is not None and weight.grad is not None:
                        self._see(site, weight)
            except Exception as error:
                self._fail(error)

    def after_step(self, optimizer: Optimizer) -> None:
        by_device: dict[torch.device, list[History]] = {}
        for tries in self._tried.values():
            for tried in tries.values():
                if tried.history is not None:
                    by_device.setdefault(tried.history.scale.device, []).append(tried.history)
        for histories in by_device.values():
            advance_all(histories)

    def skipped_step(self, optimizer: Optimizer) -> None:
        self.after_step(optimizer)

    def _see(self, site: int, tensor: Tensor) -> None:
        x = plain(tensor)
        if not x.numel():
            return
        found = summarize(x, Groups.ALL)
        seen = self._seen.setdefault(site, [0.0] * 4)
        seen[0] += found.numel
        seen[1] += found.num_nan
        seen[2] += found.num_pos_inf + found.num_neg_inf
        seen[3] = max(seen[3], found.abs_max or 0.0)
        if site not in self._tried:
            self._tried[site] = self._tries(self._sites[site][1], x.device)
        for tried in self._tried[site].values():
            tried.see(x, found.square_sum)

    def _tries(self, operand: str, device: torch.device) -> dict[str, _Tried]:
        made = {key: _Tried(how, False, scale, None) for key, (how, scale) in candidates(operand).items()}
        for (gemm, one), how in self._plan.items():
            if one == operand and how is not None:
                key = key_of(how, gemm, operand)
                if key not in made:
                    history = self._delayed(how, device) if how.delayed else None
                    made[key] = _Tried(how, (gemm, operand) in COLUMNWISE and how.scaling.kind != "tensor", None, history)
        return made

    def _fail(self, error: Exception) -> None:
        self.failed = f"{type(error).__name__}: {error}"
        for probe in self._probes:
            probe.paused = True


def key_of(how: How, gemm: str, operand: str) -> str:
    """What a cast is known by: formats that are scaled along a direction are another thing along the other one."""
    along = " along columns" if how.scaling.kind != "tensor" and (gemm, operand) in COLUMNWISE else ""
    return how.text() + along


def is_linear(module: nn.Module) -> bool:
    """Whether a module is one that ``convert`` takes."""
    return isinstance(module, nn.Linear) or class_name(module) == "Conv1D"
