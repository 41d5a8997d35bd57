"""Precision switches that find nothing to act on in a model. They are logged, not refused: other layers, or a later step, may have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from numscope.config.plan import Switch
from numscope.precision.gemm.counting import DELAYED, is_delayed, is_of_own_casts, labels_of
from numscope.precision.gemm.state import LayerState
from numscope.records.layer import Layer

COUNTING = ("collect_fp8_tensor_stats", "collect_nvfp4_tensor_stats")
_OF_QUANTIZED = ("disable_fp8_gemm", "disable_fp8_layer", "per_tensor_scaling")  # they change what a recipe quantizes
_IN_HIGH = "these layers compute in high precision, nothing there is fp8"
_Switches = Sequence[tuple[Switch, Sequence[Layer]]]
_Messages = Iterator[tuple[tuple[object, ...], str]]  # a key, so that each is logged once, and the text


def unmet_switches(switches: _Switches, states: Mapping[Layer, LayerState], refused: Mapping[Layer, str]) -> _Messages:
    """What switches need and the layers that they select do not have; ``refused`` says why ``fake_quant`` could not convert some."""
    for switch, layers in switches:
        without = [layer for layer in layers if layer not in states]
        needs_casts = switch.feature not in COUNTING or is_of_own_casts(switch)
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


def idle_switches(switches: _Switches, states: Mapping[Layer, LayerState]) -> _Messages:
    """Switches on layers that are converted, and yet compute in high precision by their recipe."""
    for switch, layers in switches:
        if switch.feature in _OF_QUANTIZED or is_of_own_casts(switch):
            high = [layer for layer in layers if (state := states.get(layer)) is not None and state.default.high and state.plan.high]
            if high:
                yield ("idle", switch), _message(switch, high, _IN_HIGH)


def _reason(switch: Switch, layer: Layer, refused: Mapping[Layer, str]) -> str:
    if switch.feature == "fake_quant":
        return refused.get(layer, "there is no linear layer")
    if switch.feature == "dump_tensors" and switch.settings["high_precision_tensor"]:
        return "nothing there is quantized; high_precision_tensor is dumped"
    return _IN_HIGH


def _message(switch: Switch, layers: Sequence[Layer], reason: str) -> str:
    names = ", ".join(layer.name for layer in layers[:4]) + (f" and {len(layers) - 4} more" if len(layers) > 4 else "")
    return f"{switch.section}.{switch.feature}: nothing to do on {names}: {reason}"
