"""Which casts a configuration's statistics describe: those that a layer's GEMMs make, or casts made on paper."""

from __future__ import annotations

from numscope.config.features import FAMILIES
from numscope.config.plan import StatRequest, Switch
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import DelayedScaling
from numscope.precision.gemm.state import LayerState
from numscope.records.formats import Format
from numscope.summary.operand_casts import EXTRAS

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
    """A switch's statistics, named as in ``summary/statistics.py``: those of the layer's own casts, and those of casts on paper.

    Own casts count only in the switch's family: a layer that casts to NVFP4 has no fp8 statistics, and the reverse.
    """
    of_operands, on_paper = [], []
    for stat in switch.settings["stats"]:
        options = dict(stat.options)
        recipe = options.pop("recipe", None)
        if recipe not in (None, DELAYED):
            on_paper.append(StatRequest(stat.label, f"{recipe}_{stat.statistic}", tuple(options.items())))
        elif state is not None and (recipe is None or is_delayed(state)):
            extra = EXTRAS[FAMILIES[switch.feature] if recipe is None else "fp8", options.get("orientation", "rowwise")]
            of_operands.append(StatRequest(stat.label, f"{extra.key}_{stat.statistic}"))
    return tuple(of_operands), tuple(on_paper)


def labels_of(switch: Switch, recipe: str | None) -> list[str]:
    """The statistics of a recipe's casts that a switch collects; recipe None: of the layer's own casts."""
    return [stat.label for stat in switch.settings.get("stats", ()) if dict(stat.options).get("recipe") == recipe]


def is_of_own_casts(switch: Switch) -> bool:
    return bool(labels_of(switch, None))


def is_delayed(state: LayerState) -> bool:
    return isinstance(state.in_force, DelayedScaling)


def format_of(plan: LayerPlan, kind: str) -> Format | None:
    """The fp8 format that a layer's GEMMs have a tensor in; None if there is none.

    Args:
        kind: ``activation``, ``weight``, …; ``dgrad`` is the next layer's ``gradient``, ``output`` its ``activation``.
    """
    operand = {"output": "activation", "dgrad": "gradient", "wgrad": "weight"}.get(kind, kind)
    hows = [how for gemm in _TAKERS[operand, "rowwise"] if (how := plan[gemm, operand]) is not None]
    return hows[0].format if hows and hows[0].format.name in ("e4m3fn", "e5m2") else None


def takers(plan: LayerPlan, operand: str, orientation: str) -> tuple[str, ...]:
    """The GEMMs whose casts of an operand are counted for a statistic, the preferred one first.

    A statistic without orientation takes whichever cast was made: in a layer without dgrad (its input needs no gradient), or with a GEMM
    switched off, that of the other GEMM. A columnwise one takes only columnwise casts, unless a cast is the same in both directions.
    """
    gemms = _TAKERS[operand, orientation]
    first, second = (plan[gemm, operand] for gemm in gemms)
    alike = first is not None and first == second and (first.is_same_both_ways if operand == "weight" else first.scaling.kind == "tensor")
    if plan.high:  # an ``autocast`` in the forward may change that
        return gemms
    if operand == "weight" and alike:
        return ("fprop",)  # one cast for both, made there
    if orientation == "columnwise":
        return gemms if alike else gemms[:1]
    return gemms if operand == "gradient" or first is None else gemms[:1]
