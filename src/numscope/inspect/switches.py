"""A configuration's precision switches at work on one model: each step's plans, counts of its casts, tensors in files.

Nothing of a model is touched without switches, and ``close`` puts back what was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor, nn

from numscope.config.plan import PLAN_SWITCHES, Asked, Collect, Custom, Switch
from numscope.inspect.recorder import Recorder
from numscope.inspect.sites import Active, Site
from numscope.inspect.unmatched import IN_HIGH, unmet
from numscope.precision.casting.cast import NUM_CELLS, Cast, cast
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.conversion import convert, convertible, revert
from numscope.precision.gemm.counting import DELAYED, is_delayed, is_of_own_casts, labels_of, split, takers
from numscope.precision.gemm.dumps import Dumps
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import HighPrecision
from numscope.precision.gemm.state import ATTRIBUTE, LayerState, state_of
from numscope.precision.gemm.switching import by_layer, fake_results, switched
from numscope.records.errors import UsageError
from numscope.records.layer import Layer
from numscope.summary import operand_casts

COUNTING = ("collect_fp8_tensor_stats", "collect_nvfp4_tensor_stats")
OF_QUANTIZED = ("disable_fp8_gemm", "disable_fp8_layer", "per_tensor_scaling")  # they change what a recipe quantizes
DUMP = "dump_tensors"
_Counted = tuple[Site, str, dict[str, int]]  # a site, an orientation, for each GEMM the row that its cast is counted into


@dataclass(slots=True)
class _Held:
    """A converted layer: its state, and what the log was told of it."""

    layer: Layer
    state: LayerState
    plan: LayerPlan | None = None
    results: Mapping[str, How] | None = None
    text: str | None = None


@dataclass(slots=True)
class _Group:
    """Layers that the same switches select."""

    switches: tuple[Switch, ...]
    held: list[_Held]
    on: tuple[Switch, ...] = ()


class Switchboard:
    """The switches of one model, from ``begin`` of its first step to ``close``.

    Args:
        switches: of the plan, each with the layers that it selects.
        modules: the model's layers.
        recorder: told of plans, and of switches that find nothing to do.
        before: the closed one of the same model, when it had other modules.

    *Cost:* at a step's begin some tenths of a microsecond a converted layer; what casts count they count in the pass that they make anyway.
    """

    def __init__(
        self,
        switches: Sequence[tuple[Switch, Sequence[Layer]]],
        modules: Mapping[Layer, nn.Module],
        recorder: Recorder,
        before: Switchboard | None = None,
    ) -> None:
        self._recorder = recorder
        self._prefix = ""
        self._modules = modules
        self._all = tuple(switches)
        self._faked: list[tuple[nn.Module, HighPrecision]] = []
        self._refused: dict[Layer, str] = {}  # why a layer can't be converted
        self._convert()
        self._states = {layer: state for layer, module in modules.items() if (state := state_of(module)) is not None}
        texts = {} if before is None else {held.layer.name: held.text for held in before._held}
        self._held: list[_Held] = [_Held(layer, state, text=texts.get(layer.name)) for layer, state in self._states.items()]
        self._groups = self._grouped(switches)
        self._presence = [(vars(module), state_of(module) is not None) for module in modules.values() if convertible(module)]
        self._looks_for_idle = True
        self._quantized_dumps = [(switch, [one for one in layers if one in self._states]) for switch, layers in switches if _dumps(switch)]
        self._backends = {id(held): held.state.backend for held in self._held}
        self._counted: list[_Counted] = []
        self._blocks: dict[torch.device, Tensor] = {}
        self._rows: dict[torch.device, int] = {}
        self._counters: list[LayerState] = []  # whose casts are counted or shown at this step
        self._dumps: Dumps | None = None
        self._dumps_failed = False
        self._step = -1

    def introduce(self, prefix: str) -> None:
        """Say what finds nothing to act on.

        Args:
            prefix: before layers' names.
        """
        self._prefix = prefix
        self._say_unmet()

    # ---- what is wanted of a model, beside what the plan collects

    def collects(self) -> list[tuple[Collect, tuple[Layer, ...]]]:
        """Statistics of casts, as parts that an inspection takes: of casts that GEMMs make, and of casts made on paper."""
        found: list[tuple[Collect, tuple[Layer, ...]]] = []
        for switch, layers in self._all:
            if switch.feature not in COUNTING:
                continue
            groups: dict[tuple[Asked, ...], list[Layer]] = {}
            for layer in layers:
                of_operands, on_paper = split(switch, self._states.get(layer))
                for stats in (of_operands, on_paper):
                    if stats:
                        groups.setdefault(stats, []).append(layer)
            tensors = switch.settings["tensors"]
            for stats, some in groups.items():
                found.append((Collect(switch.section, switch.feature, switch.selection, switch.schedule, tensors, stats), tuple(some)))
        return found

    def selected(self, collected: Mapping[Layer, list[str]]) -> dict[Layer, list[str]]:
        """For each selected layer what is wanted of it, a line each: what is collected, what switches do.

        Args:
            collected: lines of what is collected.
        """
        found = {layer: list(lines) for layer, lines in collected.items()}
        for switch, layers in self._all:
            if switch.feature in PLAN_SWITCHES:
                settings = {key: value for key, value in switch.settings.items() if value not in (None, ())}
                words = "".join(f", {key} {' '.join(v) if isinstance(v, tuple) else v}" for key, v in settings.items())
                for layer in layers:
                    found.setdefault(layer, []).append(f"{switch.feature}{words} ({switch.section})")
        return found

    def customs(self) -> list[tuple[Custom, tuple[Layer, ...]]]:
        """Tensors that are to be dumped as they are."""
        return [
            (Custom(switch.section, DUMP, switch.selection, switch.schedule, switch.settings["tensors"], switch.settings), tuple(layers))
            for switch, layers in self._all
            if switch.feature == DUMP and switch.settings["high_precision_tensor"]
        ]

    @property
    def is_stale(self) -> bool:
        """Whether layers have been converted or reverted since. *Cost:* 0.05 µs a linear layer."""
        return bool(self._all) and any((ATTRIBUTE in attributes) != was for attributes, was in self._presence)

    # ---- the course of a step

    def begin(self, step: int, active: Active) -> None:
        """Set the plans of the step to come, and what is counted and shown of it."""
        self._step = step
        for group in self._groups:
            on = tuple(switch for switch in group.switches if switch.schedule.active(step))
            if on != group.on:
                self._switch(group, on)
        self._stop_counting()
        if active.counted:
            self._count(active.counted)
        for switch, layers in self._quantized_dumps:
            if switch.schedule.active(step):
                for layer in layers:
                    self._show(layer, switch.settings["tensors"])
        self._tell()

    def end(self) -> None:
        """The step is over: what ``autocast`` has brought into force is known now."""
        self._tell()
        if self._looks_for_idle:
            self._looks_for_idle = False
            self._say_idle()

    def counted(self) -> Iterator[tuple[Site, int, list[float]]]:
        """What this step's casts counted: site, its first cell, cells. *Cost:* one read a device."""
        if not self._counted:
            return
        rows = {device: block.tolist() for device, block in self._blocks.items()}
        for site, orientation, places in self._counted:
            device = _device_of(self._modules[site.layer])
            taken = [rows[device][place] for place in places.values()]
            cells = next((cells for cells in taken if cells[0]), None)
            first = site.offset(operand_casts.EXTRAS[orientation].key)
            if cells is not None and first is not None:
                yield site, first, cells

    @property
    def anything(self) -> bool:
        """Whether this step's casts counted anything yet."""
        return any(True for _ in self.counted())

    def dump(self, site: Site, tensor: Tensor) -> None:
        """Write a tensor as it is to a file."""
        self._write(site.layer, site.tensor, {"high_precision": tensor}, {"dtype": _word(tensor.dtype)})

    def stop_statistics(self) -> None:
        """Count and show nothing any more; plans stay as they are."""
        self._stop_counting()
        self._quantized_dumps = []
        self._counted = []

    def close(self) -> None:
        """Put back what was. Safe to call twice."""
        self.stop_statistics()
        for group in self._groups:
            if group.on:
                self._switch(group, ())
        self._revert()

    def _revert(self) -> None:
        for module, recipe in self._faked:
            state = state_of(module)
            if state is not None and state.recipe is recipe:  # else somebody has converted it since
                revert(module)
        self._faked = []

    # ---- plans

    def _convert(self) -> None:
        """Layers that ``fake_quant`` is to act on need not be quantized otherwise."""
        wanted = {layer for switch, layers in self._all if switch.feature == "fake_quant" for layer in layers}
        for layer in wanted:
            module = self._modules[layer]
            if state_of(module) is None and convertible(module):
                recipe = HighPrecision()
                try:
                    convert(module, recipe, backend="emulate")
                except UsageError as error:  # a forward of its own, no weight yet
                    self._refused[layer] = str(error).split(": ", 2)[-1].partition(". ")[0]
                    continue
                except BaseException:
                    self._revert()
                    raise
                made = state_of(module)
                assert made is not None
                made.name = layer.name
                self._faked.append((module, recipe))

    def _grouped(self, switches: Sequence[tuple[Switch, Sequence[Layer]]]) -> list[_Group]:
        by_name = {held.layer.name: held for held in self._held}
        groups: dict[tuple[int, ...], _Group] = {}
        for layer, found in by_layer(switches).items():
            if layer in self._states:
                groups.setdefault(tuple(map(id, found)), _Group(tuple(found), [])).held.append(by_name[layer.name])
        return list(groups.values())

    def _switch(self, group: _Group, on: tuple[Switch, ...]) -> None:
        group.on = on
        is_faked = any(switch.feature == "fake_quant" for switch in on)
        results = fake_results(on) or None if is_faked else None
        for held in group.held:
            held.state.switch = partial(_switched, on=on) if on else None
            held.state.results = results
            held.state.backend = "emulate" if is_faked else self._backends[id(held)]  # operands are cast and back, GEMMs are not fp8
        self._looks_for_idle = True

    def _tell(self) -> None:
        """Write plans that are new to the log. A layer that is in high precision by its recipe is not worth a line."""
        lines = []
        for held in self._held:
            plan, results = held.state.plan, held.state.results
            if plan is held.plan and results is held.results:
                continue
            held.plan, held.results = plan, results
            text = plan.text() + "".join(f", {name} {how.text()}" for name, how in (results or {}).items())
            if text != held.text and not (held.text is None and plan.high and held.state.default.high and not results):
                held.text = text
                lines.append(f"{self._prefix}{held.layer.name} ({held.layer.cls}): {text}")
        if lines:
            self._recorder.say(f"precision from step {self._step} on:\n" + "\n".join(lines))

    def _say_unmet(self) -> None:
        """What finds nothing to act on; once."""
        for switch, layers in self._all:
            without = [layer for layer in layers if layer not in self._states]
            acts_on_any = switch.feature in COUNTING and not is_of_own_casts(switch)
            if without and not acts_on_any and (switch.feature != DUMP or switch.settings["quantized_tensor"]):
                for why, some in self._why_not(switch, without).items():
                    self._recorder.say_once(("unmet", self._prefix, switch, why), unmet(switch, some, why))
            undelayed = [layer for layer in layers if (state := self._states.get(layer)) is None or not is_delayed(state)]
            if undelayed and (labels := labels_of(switch, DELAYED)):
                text = unmet(switch, undelayed, "there is no delayed scaling there, and its scales can't be told afterwards")
                self._recorder.say_once(("undelayed", self._prefix, switch), f"{text} ({', '.join(labels)})")

    def _why_not(self, switch: Switch, layers: Sequence[Layer]) -> dict[str, list[Layer]]:
        found: dict[str, list[Layer]] = {}
        for layer in layers:
            why = IN_HIGH
            if switch.feature == "fake_quant":
                why = self._refused.get(layer, "there is no linear layer")
            elif switch.feature == DUMP and switch.settings["high_precision_tensor"]:
                why = "nothing there is quantized; high_precision_tensor is dumped"
            found.setdefault(why, []).append(layer)
        return found

    def _say_idle(self) -> None:
        """What found layers that are converted and compute in high precision by their recipe all the same; once."""
        for switch, layers in self._all:
            if switch.feature in OF_QUANTIZED or is_of_own_casts(switch):
                high = [
                    layer for layer in layers if (state := self._states.get(layer)) is not None and state.default.high and state.plan.high
                ]
                if high:
                    self._recorder.say_once(("idle", self._prefix, switch), unmet(switch, high))

    # ---- counts

    def _count(self, sites: Sequence[Site]) -> None:
        """Have the casts of these sites' operands count into rows of one block a device."""
        self._counted, self._rows = [], {}
        wanted: dict[Layer, dict[tuple[str, str], tuple[torch.device, int]]] = {}
        for site in sites:
            state = self._states.get(site.layer)
            if state is None:
                continue
            device = _device_of(self._modules[site.layer])
            for orientation, extra in operand_casts.EXTRAS.items():
                if site.offset(extra.key) is None:
                    continue
                places = {}
                for gemm in takers(state.plan, site.kind, orientation):
                    rows = wanted.setdefault(site.layer, {})
                    if (gemm, site.kind) not in rows:
                        rows[gemm, site.kind] = device, self._rows.get(device, 0)
                        self._rows[device] = self._rows.get(device, 0) + 1
                    places[gemm] = rows[gemm, site.kind][1]
                self._counted.append((site, orientation, places))
        for device, count in self._rows.items():
            block = self._blocks.get(device)
            if block is None or len(block) < count:
                with torch.inference_mode(False):
                    block = self._blocks[device] = torch.zeros(count, NUM_CELLS, dtype=torch.float64, device=device)
        for device in [device for device in self._blocks if device not in self._rows]:
            del self._blocks[device]
        for layer, rows in wanted.items():
            state = self._states[layer]
            # a new mapping each step: a weight that has not changed is counted again for it
            state.cells = {key: self._blocks[device][row] for key, (device, row) in rows.items()}
            self._counters.append(state)

    def _stop_counting(self) -> None:
        for state in self._counters:
            state.cells = state.observer = None
        if self._counters:
            self._counters.clear()
            for block in self._blocks.values():
                block.zero_()
        self._counted = []

    # ---- files

    def _show(self, layer: Layer, tensors: Sequence[str]) -> None:
        state = self._states[layer]
        if state.observer is None:
            state.observer = partial(self._dump_cast, layer, tuple(tensors))
            self._counters.append(state)

    def _dump_cast(self, layer: Layer, tensors: tuple[str, ...], gemm: str, operand: str, x: Tensor, made: Cast) -> None:
        """Write what a GEMM takes: its codes and scales where those were made, else its values."""
        if operand not in tensors or self._dumps_failed:
            return
        try:
            codes = made.codes if made.codes is not None else _codes_of(self._states[layer], operand, x, made)
        except Exception as error:  # no memory for it
            self._stop_dumps(error)
            return
        parts = {"scale_inv": made.scale_inv}
        parts |= {"codes": codes} if codes is not None else {}
        parts |= {"values": made.values} if made.values is not None else {}
        about = {"gemm": gemm, "how": made.how.text(), "format": made.how.format.name, "columnwise": str(made.columnwise).lower()}
        self._write(layer, f"{operand}_{gemm}", parts, about)

    def _write(self, layer: Layer, tensor: str, parts: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        if self._dumps_failed:
            return
        if self._recorder.log_dir is None:
            self._dumps_failed = True
            self._recorder.say("dump_tensors: nothing is written: there is no log_dir. Give one: log_dir=, --log-dir", logging.WARNING)
            return
        self._dumps = self._dumps or Dumps(self._recorder.log_dir, self._recorder.rank)
        try:
            self._dumps.write(self._step, self._prefix + layer.name, tensor, parts, about)
        except Exception as error:  # a full disk, a tensor without memory
            self._stop_dumps(error)

    def _stop_dumps(self, error: Exception) -> None:
        """Training goes on."""
        self._dumps_failed = True
        self._recorder.say(f"dump_tensors is off from here on: {type(error).__name__}: {error}", logging.ERROR)


@lru_cache(maxsize=4096)
def _switched(default: LayerPlan, on: tuple[Switch, ...]) -> LayerPlan:
    """``switched``, one object for layers that are switched alike."""
    return switched(default, on)


def _dumps(switch: Switch) -> bool:
    return switch.feature == DUMP and bool(switch.settings["quantized_tensor"])


def _device_of(module: nn.Module) -> torch.device:
    """Where a layer computes: where its parameters are, or those that it borrows."""
    lent = getattr(module, "_numscope_parameters", None)
    parameters = module.parameters(recurse=False) if lent is None else iter(lent().values())
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


def _codes_of(state: LayerState, operand: str, x: Tensor, made: Cast) -> Tensor | None:
    """The codes of a cast that gave values alone: cast once more. None where that would give other ones, or ask other ranks."""
    how = made.how
    history = state.histories.get((operand, how.format.name)) if how.delayed else None
    asks_ranks = not how.delayed and getattr(state.in_force, "reduce_amax", False)
    if how.rounding == "stochastic" or asks_ranks or (how.delayed and history is None):
        return None
    scale = None if history is None else history.scale
    return cast(x, how, scale=scale, columnwise=made.columnwise, values=False, codes=True).codes


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
