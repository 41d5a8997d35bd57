"""How a configuration's switches change a layer's plan, step by step. This is plain data; nothing is computed here.

If several switches concern one GEMM, the first in this list takes precedence. Everything else follows the layer's recipe.

1. ``disable_fp8_layer``: all three GEMMs run in high precision.
2. ``disable_fp8_gemm``: the named GEMMs run in high precision.
3. ``fake_quant``: in the named GEMMs, the chosen operands are cast to a format and back by their current amax; the others stay high.
4. ``per_tensor_scaling``: the chosen operands are scaled by their current amax; operands in high precision stay so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from numscope.config.features import PLAN_SWITCHES
from numscope.config.plan import Switch
from numscope.precision.casting.scaling import MX, PER_TENSOR, How
from numscope.precision.gemm.plan import OPERANDS, LayerPlan
from numscope.records.formats import format_of
from numscope.records.layer import GEMMS, Layer
from numscope.records.words import spans

RESULTS = {"output": "fprop", "dgrad": "dgrad", "wgrad": "wgrad"}  # fake_quant can cast the GEMMs' results too
Phase = tuple[LayerPlan, tuple[tuple[str, How], ...]]  # a plan, and casts of its GEMMs' results


def switched(default: LayerPlan, on: Sequence[Switch]) -> LayerPlan:
    """A default plan changed by switches, regardless of their schedules; the same object if none changes anything."""
    plan: dict[tuple[str, str], How | None] = dict(default.items())
    for gemm, operand, settings in _targets(on, "per_tensor_scaling"):
        how = plan[gemm, operand]
        if how is not None:
            plan[gemm, operand] = how.replace(scaling=PER_TENSOR, delayed=False, margin=settings["margin"])
    faked = {gemm for switch in on if switch.feature == "fake_quant" for gemm in gemms_of(switch)}
    plan.update({key: None for key in OPERANDS if key[0] in faked})
    for gemm, operand, settings in _targets(on, "fake_quant"):
        plan[gemm, operand] = fake_how(settings["quant_format"])
    high = disabled(on)
    plan.update({key: None for key in OPERANDS if key[0] in high})
    made = LayerPlan(plan)
    return default if made == default else made


def disabled(on: Sequence[Switch]) -> set[str]:
    """The GEMMs that switches disable."""
    if any(switch.feature == "disable_fp8_layer" for switch in on):
        return {*GEMMS}
    return {gemm for switch in on if switch.feature == "disable_fp8_gemm" for gemm in gemms_of(switch)}


def gemms_of(switch: Switch) -> tuple[str, ...]:
    """The GEMMs that a switch names; all of them if it names none."""
    return switch.settings.get("gemms") or GEMMS


def _targets(switches: Iterable[Switch], feature: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(GEMM, operand, settings) for the switches of one feature."""
    for switch in switches:
        if switch.feature == feature:
            tensors = switch.settings.get("tensors")
            for gemm, operand in OPERANDS:
                if gemm in gemms_of(switch) and (tensors is None or operand in tensors):
                    yield gemm, operand, switch.settings


def fake_how(quant_format: str) -> How:
    """How a ``quant_format`` casts: ``MX…`` in blocks of 32 with e8m0 scales, other formats by the tensor's current amax."""
    is_mx = quant_format.upper().startswith("MX")
    return How(format_of(quant_format[2:] if is_mx else quant_format), MX if is_mx else PER_TENSOR)


def fake_results(on: Sequence[Switch]) -> dict[str, How]:
    """How ``fake_quant`` casts a layer's results ``output``, ``dgrad`` and ``wgrad``, without those of disabled GEMMs."""
    off = disabled(on)
    return {
        tensor: fake_how(switch.settings["quant_format"])
        for switch in on
        if switch.feature == "fake_quant"
        for tensor, gemm in RESULTS.items()
        if tensor in (switch.settings.get("tensors") or ()) and gemm in gemms_of(switch) and gemm not in off
    }


def by_layer(resolved: Iterable[tuple[Switch, Sequence[Layer]]]) -> dict[Layer, list[Switch]]:
    """For each layer the switches that change its plan."""
    found: dict[Layer, list[Switch]] = {}
    for switch, layers in resolved:
        if switch.feature in PLAN_SWITCHES:
            for layer in layers:
                found.setdefault(layer, []).append(switch)
    return found


def phases(default: LayerPlan, switches: Sequence[Switch], steps: range) -> list[tuple[Phase, list[tuple[int, int]]]]:
    """The phases of a layer over a range of steps, each with its spans of steps (first and last, inclusive), in order of first use."""
    found: dict[Phase, list[int]] = {}
    plans: dict[tuple[bool, ...], Phase] = {}
    for step in steps:
        on = tuple(switch.schedule.active(step) for switch in switches)
        if on not in plans:
            active = [switch for switch, is_on in zip(switches, on, strict=True) if is_on]
            plans[on] = switched(default, active), tuple(fake_results(active).items())
        found.setdefault(plans[on], []).append(step)
    return [(phase, spans(active)) for phase, active in found.items()]
