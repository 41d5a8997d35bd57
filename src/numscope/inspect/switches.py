"""A configuration's precision switches at work on one model: at each step's begin, every converted layer gets its plan.

Nothing of a model is touched without switches, and ``close`` puts back what was there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from torch import Tensor, nn

from numscope.config.features import FAMILIES, PLAN_SWITCHES
from numscope.config.plan import Collect, PluginFeature, StatRequest, Switch
from numscope.inspect.casts import DUMP, CastCounts, TensorDumps
from numscope.inspect.recorder import Recorder
from numscope.inspect.sites import Active, PlannedSite
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.conversion import convert, convertible, revert
from numscope.precision.gemm.counting import DELAYED, format_of, is_delayed, is_of_own_casts, labels_of, split
from numscope.precision.gemm.layer_state import ATTRIBUTE, Backend, LayerState, state_of
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import HighPrecision
from numscope.precision.gemm.switching import by_layer, fake_results, switched
from numscope.records.errors import UsageError
from numscope.records.formats import Format
from numscope.records.layer import Layer
from numscope.records.words import few

_OF_QUANTIZED = ("disable_fp8_gemm", "disable_fp8_layer", "per_tensor_scaling")  # they change what a recipe quantizes
_WORDS = {"fp8": "fp8", "nvfp4": "NVFP4"}
_IN_HIGH = "these layers compute in high precision, nothing there is fp8"
_Switches = Sequence[tuple[Switch, Sequence[Layer]]]
_Messages = Iterator[tuple[tuple[object, ...], str]]  # a key, so that each is logged once, and the text


@dataclass(slots=True)
class _Converted:
    """A converted layer, and what the log has said of it."""

    layer: Layer
    state: LayerState
    backend: Backend
    text: str | None
    plan: LayerPlan | None = None
    results: Mapping[str, How] | None = None


@dataclass(slots=True)
class _Alike:
    """Layers that the same switches select."""

    switches: tuple[Switch, ...]
    members: list[_Converted]
    on: tuple[Switch, ...] = ()


class Switchboard:
    """The switches of one model, from ``begin`` of its first step to ``close``.

    Args:
        switches: of the plan, each with the layers that it selects.
        modules: the model's layers.
        recorder: logs plans, and switches that find nothing to do.
        before: the closed one of the same model, if its modules have changed since.

    *Cost:* at a step's begin some tenths of a microsecond per converted layer.
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
        texts = {} if before is None else {one.layer.name: one.text for one in before._converted}
        self._converted: list[_Converted] = [
            _Converted(layer, state, state.backend, texts.get(layer.name)) for layer, state in self._states.items()
        ]
        self._groups = self._grouped()
        self._presence = [(vars(module), state_of(module) is not None) for module in modules.values() if convertible(module)]
        self._looks_for_idle = True
        self._counts = CastCounts(self._states, modules)
        self._dumps = TensorDumps(switches, self._states, recorder)
        self._step = -1

    def introduce(self, prefix: str) -> None:
        """Log what finds nothing to act on; ``prefix``: before layers' names."""
        self._prefix = self._dumps.prefix = prefix
        self._say(_unmet(self._all, self._states, self._refused))

    # ---- what is wanted of a model, besides what the plan collects

    def collects(self) -> Iterator[tuple[Collect, tuple[Layer, ...]]]:
        """Statistics of casts, as parts that an inspection takes: casts that GEMMs make, and casts made on paper."""
        for switch, layers in self._all:
            if switch.feature not in FAMILIES:
                continue
            groups: dict[tuple[StatRequest, ...], list[Layer]] = {}
            for layer in layers:
                for stats in split(switch, self._states.get(layer)):
                    if stats:
                        groups.setdefault(stats, []).append(layer)
            tensors = switch.settings["tensors"]
            for stats, some in groups.items():
                yield Collect(switch.section, switch.feature, switch.selection, switch.schedule, tensors, stats), tuple(some)

    def selected(self, collected: Mapping[Layer, list[str]]) -> dict[Layer, list[str]]:
        """``collected``, for each selected layer a line for each thing that is collected, and lines for what is switched."""
        found = {layer: list(lines) for layer, lines in collected.items()}
        for switch, layers in self._all:
            if switch.feature in PLAN_SWITCHES:
                settings = {key: value for key, value in switch.settings.items() if value not in (None, ())}
                words = "".join(f", {key} {' '.join(v) if isinstance(v, tuple) else v}" for key, v in settings.items())
                for layer in layers:
                    found.setdefault(layer, []).append(f"{switch.feature}{words} ({switch.section})")
        return found

    def customs(self) -> Iterator[tuple[PluginFeature, tuple[Layer, ...]]]:
        """Tensors to dump as they are."""
        for switch, layers in self._all:
            if switch.feature == DUMP and (settings := switch.settings)["high_precision_tensor"]:
                yield PluginFeature(switch.section, DUMP, switch.selection, switch.schedule, settings["tensors"], settings), tuple(layers)

    @property
    def is_stale(self) -> bool:
        """Whether layers have been converted or reverted since. *Cost:* 0.05 µs per linear layer."""
        return bool(self._all) and any((ATTRIBUTE in attributes) != was for attributes, was in self._presence)

    # ---- the course of a step

    def begin(self, step: int, active: Active) -> None:
        """Set the plans of the step to come, and what is counted and dumped of it."""
        self._step = step
        for group in self._groups:
            on = tuple(switch for switch in group.switches if switch.schedule.active(step))
            if on != group.on:
                self._switch(group, on)
        self._counts.start(active.counted)
        self._dumps.start(step)
        self._log_plans()

    def end(self) -> None:
        """The step is over: by now it is known which recipes ``autocast`` has brought into force."""
        self._log_plans()
        if self._looks_for_idle:
            self._looks_for_idle = False
            self._say(_idle(self._all, self._states))
            self._say(_of_another_family(self._all, self._states), logging.WARNING)

    def _say(self, messages: _Messages, level: int = logging.INFO) -> None:
        for key, text in messages:
            self._recorder.say_once((self._prefix, *key), text, level)

    def counted(self) -> Iterator[tuple[PlannedSite, int, list[float]]]:
        """The counts of this step's casts: site, its first cell, cells. *Cost:* one copy per device."""
        return self._counts.read()

    @property
    def anything(self) -> bool:
        """Whether this step's casts have counted anything yet."""
        return any(True for _ in self.counted())

    def dump(self, site: PlannedSite, tensor: Tensor) -> None:
        """Write a tensor as it is to a file."""
        self._dumps.write(site.layer, site.tensor, {"high_precision": tensor}, {"dtype": str(tensor.dtype).removeprefix("torch.")})

    def format_of(self, site: PlannedSite) -> Format | None:
        """The fp8 format that the site's layer casts the tensor to; None if it does not cast to fp8."""
        state = self._states.get(site.layer)
        return None if state is None else format_of(state.plan, site.kind)

    def stop_statistics(self) -> None:
        """Count and dump nothing more. Plans stay as they are."""
        self._counts.stop()
        self._dumps.stop()

    def close(self) -> None:
        """Put back what was there. Safe to call twice."""
        self.stop_statistics()
        for group in self._groups:
            if group.on:
                self._switch(group, ())
        self._revert()

    # ---- plans

    def _convert(self) -> None:
        """Convert the layers that ``fake_quant`` is to act on and that are not converted yet."""
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

    def _revert(self) -> None:
        for module, recipe in self._faked:
            state = state_of(module)
            if state is not None and state.recipe is recipe:  # else somebody has converted it since
                revert(module)
        self._faked = []

    def _grouped(self) -> list[_Alike]:
        members = {one.layer: one for one in self._converted}
        groups: dict[tuple[int, ...], _Alike] = {}
        for layer, found in by_layer(self._all).items():
            if layer in members:
                groups.setdefault(tuple(map(id, found)), _Alike(tuple(found), [])).members.append(members[layer])
        return list(groups.values())

    def _switch(self, group: _Alike, on: tuple[Switch, ...]) -> None:
        group.on = on
        is_faked = any(switch.feature == "fake_quant" for switch in on)
        results = fake_results(on) or None if is_faked else None
        for one in group.members:
            one.state.switch = partial(_switched, on=on) if on else None
            one.state.results = results
            one.state.backend = "emulate" if is_faked else one.backend  # operands are cast and back; no GEMM is fp8
        self._looks_for_idle = True

    def _log_plans(self) -> None:
        """Log plans that are new. A layer that is in high precision by its recipe is not worth a line."""
        lines = []
        for one in self._converted:
            plan, results = one.state.plan, one.state.results
            if plan is one.plan and results is one.results:
                continue
            one.plan, one.results = plan, results
            text = plan.text() + "".join(f", {name} {how.text()}" for name, how in (results or {}).items())
            if text != one.text and not (one.text is None and plan.high and one.state.default.high and not results):
                one.text = text
                lines.append(f"{self._prefix}{one.layer.name} ({one.layer.cls}): {text}")
        if lines:
            self._looks_for_idle = True
            self._recorder.say(f"precision from step {self._step} on:\n" + "\n".join(lines))


@lru_cache(maxsize=4096)
def _switched(default: LayerPlan, on: tuple[Switch, ...]) -> LayerPlan:
    """``switched``, giving layers that are switched alike one object."""
    return switched(default, on)


# ---- switches that find nothing to act on: logged, not refused, since other layers, or a later step, may have it


def _unmet(switches: _Switches, states: Mapping[Layer, LayerState], refused: Mapping[Layer, str]) -> _Messages:
    """Why switches do not fit the layers that they select; ``refused``: why ``fake_quant`` could not convert some."""
    for switch, layers in switches:
        without = [layer for layer in layers if layer not in states]
        needs_casts = switch.feature not in FAMILIES or is_of_own_casts(switch)
        if needs_casts and (switch.feature != "dump_tensors" or switch.settings["quantized_tensor"]):
            by_reason: dict[str, list[Layer]] = {}
            for layer in without:
                by_reason.setdefault(_reason(switch, layer, refused), []).append(layer)
            for reason, some in by_reason.items():
                yield ("unmet", switch, reason), _message(switch, some, reason)
        undelayed = [layer for layer in layers if (state := states.get(layer)) is None or not is_delayed(state)]
        if undelayed and (labels := labels_of(switch, DELAYED)):
            text = _message(switch, undelayed, "there is no delayed scaling there, and its scales can't be found out afterwards")
            yield ("undelayed", switch), f"{text} ({', '.join(labels)})"


def _idle(switches: _Switches, states: Mapping[Layer, LayerState]) -> _Messages:
    """Switches on layers that are converted, and yet compute in high precision by their recipe."""
    for switch, layers in switches:
        if switch.feature in _OF_QUANTIZED or is_of_own_casts(switch):
            high = [layer for layer in layers if (state := states.get(layer)) is not None and state.default.high and state.plan.high]
            if high:
                yield ("idle", switch), _message(switch, high, _IN_HIGH)


def _of_another_family(switches: _Switches, states: Mapping[Layer, LayerState]) -> _Messages:
    """Statistics of fp8 casts asked of layers that cast to NVFP4, and the reverse: they are skipped."""
    for switch, layers in switches:
        if switch.feature in FAMILIES and is_of_own_casts(switch):
            wanted = FAMILIES[switch.feature]
            families = {
                layer: {how.family for how in states[layer].plan.values() if how is not None} for layer in layers if layer in states
            }
            if others := [layer for layer, found in families.items() if found and wanted not in found]:
                other = next(feature for feature in FAMILIES if feature != switch.feature)
                reason = f"nothing there is cast to {_WORDS[wanted]}; its statistics are skipped. Use {other} for these layers"
                yield ("family", switch), _message(switch, others, reason)


def _reason(switch: Switch, layer: Layer, refused: Mapping[Layer, str]) -> str:
    if switch.feature == "fake_quant":
        return refused.get(layer, "there is no linear layer")
    if switch.feature == "dump_tensors" and switch.settings["high_precision_tensor"]:
        return "nothing there is quantized; high_precision_tensor is dumped"
    return _IN_HIGH


def _message(switch: Switch, layers: Sequence[Layer], reason: str) -> str:
    return f"{switch.section}.{switch.feature}: nothing to do on {few([layer.name for layer in layers], 4)}: {reason}"
