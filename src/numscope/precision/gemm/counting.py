"""Which casts a configuration's statistics describe: those that a layer's GEMMs make, or casts made on paper."""

from __future__ import annotations

from numscope.config.plan import StatRequest, Switch
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import DelayedScaling
from numscope.precision.gemm.state import LayerState
from numscope.precision.gemm.weights import is_same_both_ways

DELAYED = "fp8_delayed_scaling"  # only layers that use this recipe have its scales
# The GEMM whose cast of an operand a statistic describes, and the GEMM that stands in where the first takes it in high precision.
_TAKERS = {
    ("activation", "rowwise"): ("fprop", "wgrad"),
    ("activation", "columnwise"): ("wgrad", "fprop"),
    ("gradient", "rowwise"): ("dgrad", "wgrad"),
    ("gradient", "columnwise"): ("wgrad", "dgrad"),
    ("weight", "rowwise"): ("fprop", "dgrad"),
    ("weight", "columnwise"): ("dgrad", "fprop"),
}


def split(switch: Switch, state: LayerState | None) -> tuple[tuple[StatRequest, ...], tuple[StatRequest, ...]]:
    """A switch's statistics, named as in ``summary/statistics.py``: those of the layer's own casts, and those of casts on paper."""
    of_operands, on_paper = [], []
    for stat in switch.settings["stats"]:
        options = dict(stat.options)
        recipe = options.get("recipe")
        if state is not None and (recipe is None or (recipe == DELAYED and is_delayed(state))):
            word = "columnwise_" if options.get("orientation") == "columnwise" else ""
            of_operands.append(StatRequest(stat.label, f"operand_{word}{stat.statistic}"))
        elif recipe not in (None, DELAYED):  # the recipe is the first option, the orientation, if any, the second
            on_paper.append(StatRequest(stat.label, f"{recipe}_{stat.statistic}", stat.options[1:]))
    return tuple(of_operands), tuple(on_paper)


def labels_of(switch: Switch, recipe: str | None) -> list[str]:
    """The statistics of a recipe's casts that a switch collects; recipe None: of the layer's own casts."""
    return [stat.label for stat in switch.settings.get("stats", ()) if dict(stat.options).get("recipe") == recipe]


def is_of_own_casts(switch: Switch) -> bool:
    return bool(labels_of(switch, None))


def is_delayed(state: LayerState) -> bool:
    return isinstance(state.in_force, DelayedScaling)


def takers(plan: LayerPlan, operand: str, orientation: str) -> tuple[str, ...]:
    """The GEMMs whose casts of an operand are counted for a statistic, the preferred one first.

    A statistic without orientation takes whichever cast was made: in a layer without dgrad (its input needs no gradient), or with a GEMM
    switched off, that of the other GEMM. A columnwise one takes only columnwise casts, unless a cast is the same in both directions.
    """
    gemms = _TAKERS[operand, orientation]
    first, second = (plan[gemm, operand] for gemm in gemms)
    alike = first is not None and first == second and (is_same_both_ways(first) if operand == "weight" else first.scaling.kind == "tensor")
    if plan.high:  # an ``autocast`` in the forward may change that
        return gemms
    if operand == "weight" and alike:
        return ("fprop",)  # one cast for both, made there
    if orientation == "columnwise":
        return gemms if alike else gemms[:1]
    return gemms if operand == "gradient" or first is None else gemms[:1]
