"""What the switches of a configuration make of a layer's plan, step by step; plain data, nothing is run here.

Where several say something of one GEMM, the first of these has the word:

1. ``disable_fp8_layer``: all three GEMMs in high precision.
2. ``disable_fp8_gemm``: those GEMMs in high precision.
3. ``fake_quant``: of those GEMMs, the chosen operands cast to a format and back, by their current amax, the others in high precision.
4. ``per_tensor_scaling``: those operands by their current amax instead of what the recipe has; operands in high precision stay so.

All else is as the layer's recipe has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from numscope.config.plan import PLAN_SWITCHES, Switch
from numscope.precision.casting.scaling import PER_TENSOR, How, Scaling
from numscope.precision.gemm.plan import GEMMS, OPERANDS, LayerPlan
from numscope.records.formats import format_of
from numscope.records.layer import Layer

RESULTS = {"output": "fprop", "dgrad": "dgrad", "wgrad": "wgrad"}  # what fake_quant may also cast: the GEMMs' results
Phase = tuple[LayerPlan, tuple[tuple[str, How], ...]]  # a plan, and casts of its GEMMs' results
MX = Scaling("block", (1, 32), power_of_two=True, scale_format="e8m0")


def layer_plan(default: LayerPlan, switches: Sequence[Switch], step: int) -> LayerPlan:
    """The plan of one layer at a step.

    Args:
        default: its recipe's.
        switches: those that select the layer; others than ``PLAN_SWITCHES`` are passed over.

    Returns: ``default`` itself where no switch is on its schedule or none changes anything.
    """
    return switched(default, tuple(switch for switch in switches if switch.schedule.active(step)))


def switched(default: LayerPlan, on: Sequence[Switch]) -> LayerPlan:
    """The plan that switches make of a default, whatever their schedules."""
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
    """The GEMMs that switches put into high precision."""
    if any(switch.feature == "disable_fp8_layer" for switch in on):
        return {*GEMMS}
    return {gemm for switch in on if switch.feature == "disable_fp8_gemm" for gemm in gemms_of(switch)}


def gemms_of(switch: Switch) -> tuple[str, ...]:
    """The GEMMs that a switch names; all where it names none."""
    return switch.settings.get("gemms") or GEMMS


def _targets(switches: Iterable[Switch], feature: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(GEMM, operand, settings) of the switches of one feature."""
    for switch in switches:
        if switch.feature == feature:
            tensors = switch.settings.get("tensors")
            for gemm, operand in OPERANDS:
                if gemm in gemms_of(switch) and (tensors is None or operand in tensors):
                    yield gemm, operand, switch.settings


def fake_how(quant_format: str) -> How:
    """How a ``quant_format`` casts: ``MX…`` in blocks of 32 with e8m0 scales, any other format by the tensor's current amax."""
    is_mx = quant_format.upper().startswith("MX")
    return How(format_of(quant_format[2:] if is_mx else quant_format), MX if is_mx else PER_TENSOR)


def fake_results(on: Sequence[Switch]) -> dict[str, How]:
    """What ``fake_quant`` casts of a layer's results: ``output``, ``dgrad``, ``wgrad``; nothing of a GEMM that is disabled."""
    off = disabled(on)
    return {
        tensor: fake_how(switch.settings["quant_format"])
        for switch in on
        if switch.feature == "fake_quant"
        for tensor, gemm in RESULTS.items()
        if tensor in (switch.settings.get("tensors") or ()) and gemm in gemms_of(switch) and gemm not in off
    }


def by_layer(resolved: Iterable[tuple[Switch, Sequence[Layer]]]) -> dict[Layer, list[Switch]]:
    """For each layer the switches of its plan that select it."""
    found: dict[Layer, list[Switch]] = {}
    for switch, layers in resolved:
        if switch.feature in PLAN_SWITCHES:
            for layer in layers:
                found.setdefault(layer, []).append(switch)
    return found


def phases(default: LayerPlan, switches: Sequence[Switch], steps: range) -> list[tuple[Phase, list[tuple[int, int]]]]:
    """What a layer does over some steps, each with its spans of steps (first and last, both included), the first one first."""
    found: dict[Phase, list[tuple[int, int]]] = {}
    plans: dict[tuple[bool, ...], Phase] = {}
    for step in steps:
        on = tuple(switch.schedule.active(step) for switch in switches)
        if on not in plans:
            active = [switch for switch, is_on in zip(switches, on, strict=True) if is_on]
            plans[on] = layer_plan(default, active, step), tuple(fake_results(active).items())
        spans = found.setdefault(plans[on], [])
        if spans and spans[-1][1] == step - 1:
            spans[-1] = (spans[-1][0], step)
        else:
            spans.append((step, step))
    return list(found.items())
