"""Measures a trial run while it trains unchanged: its loss, and what casts would do to the operands of a model's linear layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from numscope.precision.casting.cast import cast, empty_cells
from numscope.precision.casting.delayed import History, advance_all
from numscope.precision.casting.scaling import MX, PER_TENSOR, How, Scaling
from numscope.precision.gemm.conversion import convertible, is_conv1d
from numscope.precision.gemm.plan import COLUMNWISE
from numscope.precision.search.advise import OPERANDS
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.entry import LayerSites
from numscope.probe.layer_names import layers_of
from numscope.probe.loop_calls import LoopCall
from numscope.probe.module import ModuleProbe
from numscope.records.formats import format_of
from numscope.summary.dispatch import summarize
from numscope.summary.state import Groups, Summary
from numscope.summary.unwrap import plain

_TILES = {operand: Scaling("block", (128, 128) if operand == "weight" else (1, 128)) for operand in OPERANDS}
_COUNTS = ("numel", "num_underflow", "num_overflow")
ONE = 1.0  # the scale of wide formats


def candidates(operand: str) -> dict[str, tuple[How, float | None]]:
    """The formats that an operand is measured in, from the most common to the widest: how it is cast, and a fixed scale if there is one."""
    e4m3, e5m2 = format_of("e4m3"), format_of("e5m2")
    return {
        "e4m3": (How(e4m3, PER_TENSOR), None),
        "e5m2": (How(e5m2, PER_TENSOR), None),
        "block": (How(e4m3, _TILES[operand]), None),
        "mxfp8": (How(e4m3, MX), None),
        "bf16": (How(format_of("bf16"), saturate=False), ONE),
        "fp16": (How(format_of("fp16"), saturate=False), ONE),
    }


@dataclass(slots=True)
class _Tried:
    """One cast of one operand, made at each call of the layer. All calls count alike, however large the operand is."""

    how: How
    columnwise: bool
    scale: float | None
    history: History | None
    counts: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*_COUNTS, "noise", "num_casts"), 0.0))

    def see(self, x: Tensor, signal: float) -> None:
        cells, history = empty_cells(x.device), self.history
        scale = self.scale if history is None else history.scale
        amax = None if history is None else history.amax
        cast(x, self.how, scale=scale, columnwise=self.columnwise, values=False, cells=cells, amax=amax)
        if history is not None and history.num_steps == 0:
            return  # its scale is 1 in the first step, which is not typical
        *counts, error = cells.tolist()[:4]
        for name, count in zip(_COUNTS, counts, strict=True):
            self.counts[name] += count
        if signal > 0:
            self.counts["noise"] += error / signal
            self.counts["num_casts"] += 1


class WhatIf(optimizer_probe.StepListener):
    """Measures models from ``add`` to ``close``.

    Args:
        plan: of a recipe.
        delayed: returns a new history for one operand under that recipe.

    *Cost:* a dozen passes over each operand of each linear layer, and a sync for each: meant for a few steps.
    """

    def __init__(self, plan: Mapping[tuple[str, str], How | None], delayed: Callable[[How, torch.device], History]) -> None:
        self._plan = plan
        self._delayed = delayed
        self._sites: list[tuple[str, str]] = []  # layer, operand
        self._tried: dict[int, dict[str, _Tried]] = {}
        self._seen: dict[int, Summary] = {}  # by site
        self._weights: list[tuple[int, nn.Module]] = []
        self._transposed: set[int] = set()  # sites of weights that are stored as [in_features, out_features]
        self._probes: list[ModuleProbe] = []
        self.classes: dict[str, str] = {}
        self.error: str | None = None

    def add(self, model: nn.Module) -> None:
        """Measure a model from its next forward on."""
        if not self._probes:
            optimizer_probe.listen(self)
        armed: dict[nn.Module, LayerSites] = {}
        for module, layer in layers_of(model).items():
            if convertible(module) and layer.name not in self.classes:
                self.classes[layer.name] = layer.cls
                first = len(self._sites)
                self._sites += [(layer.name, operand) for operand in OPERANDS]
                armed[module] = LayerSites(activation=first, gradient=first + 2)
                self._weights.append((first + 1, module))
                if is_conv1d(module):
                    self._transposed.add(first + 1)
        probe = ModuleProbe(model)
        probe.arm(armed, self)
        self._probes.append(probe)

    def close(self) -> None:
        for probe in self._probes:
            probe.disarm()
        optimizer_probe.unlisten(self)

    def numbers(self) -> dict[str, Any]:
        """The measurements, in plain values."""
        layers: dict[str, Any] = {}
        for site, (layer, operand) in enumerate(self._sites):
            if site in self._seen:
                seen = self._seen[site]
                counts = {"numel": seen.numel, "num_nan": seen.num_nan, "num_inf": seen.num_pos_inf + seen.num_neg_inf}
                casts = {key: tried.counts for key, tried in self._tried.get(site, {}).items()}
                operands = layers.setdefault(layer, {"class": self.classes[layer], "operands": {}})["operands"]
                operands[operand] = {**counts, "amax": seen.abs_max or 0.0, "casts": casts}
        plan: dict[str, dict[str, str | None]] = {gemm: {} for gemm, _ in self._plan}
        for (gemm, operand), how in self._plan.items():
            plan[gemm][operand] = None if how is None else key_of(how, gemm, operand)
        return {"plan": plan, "layers": layers, "failed": self.error}

    # ---- called by the probes

    @property
    def closed(self) -> bool:
        """Whether an error of the tool's has ended it."""
        return self.error is not None

    @optimizer_probe.guarded()
    def before_step(self, optimizer: Optimizer) -> None:
        for site, module in self._weights:
            weight = weight_of(module)
            if weight is not None:
                self.observe(site, weight)

    def after_step(self, optimizer: Optimizer) -> None:
        histories = [tried.history for tries in self._tried.values() for tried in tries.values() if tried.history is not None]
        for device in {history.scale.device for history in histories}:
            advance_all([history for history in histories if history.scale.device == device])

    def skipped_step(self, optimizer: Optimizer) -> None:
        self.after_step(optimizer)

    def observe(self, site: int, tensor: Tensor, shape: torch.Size | None = None) -> None:
        x = plain(tensor if shape is None else tensor.reshape(shape))
        if not x.numel():
            return
        found = summarize(x, Groups.ALL)
        self._seen[site] = self._seen[site].merge(found) if site in self._seen else found
        if site not in self._tried:
            self._tried[site] = self._tries(site, x.device)
        for tried in self._tried[site].values():
            tried.see(x, found.square_sum)

    def _tries(self, site: int, device: torch.device) -> dict[str, _Tried]:
        operand, is_transposed = self._sites[site][1], site in self._transposed
        made = {key: _Tried(how, False, scale, None) for key, (how, scale) in candidates(operand).items()}
        for (gemm, one), how in self._plan.items():
            if one == operand and how is not None:
                key = key_of(how, gemm, operand)
                if key not in made:
                    history = self._delayed(how, device) if how.delayed else None
                    columnwise = how.scaling.kind != "tensor" and ((gemm, operand) in COLUMNWISE) != is_transposed
                    made[key] = _Tried(how, columnwise, None, history)
        return made

    def failed(self, error: Exception) -> None:
        self.error = f"{type(error).__name__}: {error}"
        for probe in self._probes:
            probe.disarm()


def key_of(how: How, gemm: str, operand: str) -> str:
    """A cast's name. With scales for rows or blocks, the two directions are different casts."""
    along = " along columns" if how.scaling.kind != "tensor" and (gemm, operand) in COLUMNWISE else ""
    return how.text() + along


def weight_of(module: nn.Module) -> Tensor | None:
    """The weight that a layer's GEMMs take: its own, or, for a part of a fused module, its parent's, joined; None without a gradient."""
    own = module._parameters.get("weight")
    if own is not None:
        return own if own.grad is not None else None
    weight: Any = getattr(module, "weight", None)
    with torch.no_grad():
        weight = weight() if callable(weight) else weight
    return weight if isinstance(weight, Tensor) else None


Over = Callable[[int, float], None]


class LossRecorder(optimizer_probe.StepListener):
    """Records losses from ``open`` to ``close``; calls ``over`` with each step's number and loss, once its weights have been updated.

    The loss is the tensor that ``backward`` is called on, so a script does not have to name it. Several backward calls before an
    optimizer's step (micro-batches, several losses) are summed. A loss scaled by a ``GradScaler`` counts as it was before scaling, and
    roots with several elements do not count. If one model's optimizer steps between the backward calls of one training step (a GAN), each
    stretch between two optimizers' steps counts as a step.

    *Cost:* a host sync per backward: meant for short trial runs.
    """

    def __init__(self, over: Over = lambda step, loss: None) -> None:
        self.losses: list[float] = []
        self._over = over
        self._sum: float | None = None  # the current step's loss so far
        self._unscaled = WeakIdKeyDictionary()  # tensors compare by their elements

    def open(self) -> None:
        optimizer_probe.listen(self)

    def called(self, call: LoopCall) -> None:
        if call.kind == "scale" and isinstance(outputs := call.given(1, "outputs"), Tensor):
            self._unscaled[call.args[0]] = outputs.detach()

    def close(self) -> None:
        optimizer_probe.unlisten(self)
        if self._sum is not None:  # no torch optimizer has stepped since the last backward
            self._end()

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        for root in roots:
            if root.numel() == 1:
                original: Tensor = self._unscaled.get(root, root)  # type: ignore[no-untyped-call]
                value = float(original.detach().double().item())
                self._sum = value if self._sum is None else self._sum + value

    def after_step(self, optimizer: Optimizer) -> None:
        if self._sum is not None:  # else this is a second optimizer in the same step
            self._end()

    def skipped_step(self, optimizer: Optimizer) -> None:
        self.after_step(optimizer)

    def _end(self) -> None:
        assert self._sum is not None
        loss, self._sum = self._sum, None
        self.losses.append(loss)
        self._over(len(self.losses) - 1, loss)
