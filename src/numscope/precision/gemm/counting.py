"""Which casts the statistics of a configuration are of: those that a layer's GEMMs make, and those made on paper."""

from __future__ import annotations

from collections.abc import Mapping

from numscope.config.plan import Asked, Switch
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import DelayedScaling
from numscope.precision.gemm.state import LayerState

DELAYED = "fp8_delayed_scaling"  # a recipe whose scales only the layers have that use it
# The GEMM whose cast a statistic of an operand is of; where that one takes it as it is, the other one's.
_TAKERS = {
    ("activation", "rowwise"): ("fprop", "wgrad"),
    ("activation", "columnwise"): ("wgrad", "fprop"),
    ("gradient", "rowwise"): ("dgrad", "wgrad"),
    ("gradient", "columnwise"): ("wgrad", "dgrad"),
    ("weight", "rowwise"): ("fprop", "dgrad"),
    ("weight", "columnwise"): ("dgrad", "fprop"),
}


def split(switch: Switch, state: LayerState | None) -> tuple[tuple[Asked, ...], tuple[Asked, ...]]:
    """A switch's statistics under the names of ``summary/statistics.py``: those of a layer's own casts, those of casts on paper."""
    of_operands = []
    for asked in switch.settings["stats"]:
        options = dict(asked.options)
        recipe = options.get("recipe")
        if state is not None and (recipe is None or (recipe == DELAYED and is_delayed(state))):
            of_operands.append(Asked(asked.label, f"operand_{_word_of(options)}{asked.statistic}"))
    on_paper = [Asked(asked.label, on_paper_name(asked), asked.options[1:]) for asked in paper_of(switch)]
    return tuple(of_operands), tuple(on_paper)


def paper_of(switch: Switch) -> list[Asked]:
    """What a switch asks of casts on paper."""
    return [asked for asked in switch.settings.get("stats", ()) if dict(asked.options).get("recipe") not in (None, DELAYED)]


def on_paper_name(asked: Asked) -> str:
    """Its name in ``summary/statistics.py``: the recipe is its first option, the orientation, if any, the second."""
    return f"{dict(asked.options)['recipe']}_{asked.statistic}"


def labels_of(switch: Switch, recipe: str | None) -> list[str]:
    """The statistics that a switch asks for of a recipe; None: of the layer's own casts."""
    return [asked.label for asked in switch.settings.get("stats", ()) if dict(asked.options).get("recipe") == recipe]


def is_of_own_casts(switch: Switch) -> bool:
    return bool(labels_of(switch, None))


def is_delayed(state: LayerState) -> bool:
    return isinstance(state.in_force, DelayedScaling)


def takers(plan: LayerPlan, operand: str, orientation: str) -> tuple[str, ...]:
    """The GEMMs into whose rows an operand is counted, the one that the statistic is of first.

    A statistic without orientation is of whichever cast was made: a layer without dgrad (its input takes no gradient), or with a GEMM
    switched off, has the other one. One of columns is of these alone, unless a cast is the same either way.
    """
    gemms = _TAKERS[operand, orientation]
    first, second = (plan[gemm, operand] for gemm in gemms)
    alike = first is not None and first == second and _is_either_way(first, operand)
    if plan.high:  # ``autocast`` may say otherwise in the forward
        return gemms
    if operand == "weight" and alike:
        return ("fprop",)  # one cast for both, made there
    if orientation == "columnwise":
        return gemms if alike else gemms[:1]
    return gemms if operand == "gradient" or first is None else gemms[:1]


def _word_of(options: Mapping[str, object]) -> str:
    return "columnwise_" if options.get("orientation") == "columnwise" else ""


def _is_either_way(how: How, operand: str) -> bool:
    """Whether an operand's cast is the same for the GEMM that takes it transposed."""
    rows, columns = how.scaling.block
    return how.scaling.kind == "tensor" or (how.scaling.kind == "block" and operand == "weight" and rows == columns)
