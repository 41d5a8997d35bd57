"""Selects the casts that a configuration's statistics describe: those that a layer's GEMMs make, or casts made on paper."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from numscope.config.features import FAMILIES
from numscope.config.plan import StatRequest, Switch
from numscope.precision.casting.cast import cast, empty_cells
from numscope.precision.casting.scaling import How
from numscope.precision.gemm.layer_state import LayerState
from numscope.precision.gemm.plan import LayerPlan
from numscope.precision.gemm.recipes import MXFP8, NVFP4, BlockScaling, CurrentScaling, DelayedScaling, Recipe
from numscope.records.formats import Format
from numscope.records.formats import format_of as format_of_name
from numscope.summary.dispatch import read
from numscope.summary.extras import Layout
from numscope.summary.operand_casts import ERRORS, EXTRAS, TO_FORMAT, UNSCALED

DELAYED = "fp8_delayed_scaling"  # only layers that use this recipe have its scales
# The GEMM whose cast of an operand a statistic describes, and the GEMM used instead if the first takes it in high precision.
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


_RECIPES: dict[str, Recipe] = {
    "fp8_current_scaling": CurrentScaling(),
    "fp8_block_scaling": BlockScaling(),
    "mxfp8": MXFP8(),
    "mxfp8_rceil": MXFP8(e8m0_rounding="rceil"),
    "nvfp4": NVFP4(),
}
_TO_FORMAT = {key: How(format_of_name(key), saturate=key not in UNSCALED) for key in TO_FORMAT}
_OPERANDS = {
    **dict.fromkeys(("weight", "wgrad"), ("fprop", "weight")),
    **dict.fromkeys(("gradient", "dgrad"), ("dgrad", "gradient")),
}


@cache
def how_of(key: str, tensor: str, own: Format | None = None) -> How:
    """How a cast on paper, a key of ``operand_casts.PAPER_EXTRAS``, casts a tensor.

    Args:
        tensor: ``weight`` and ``wgrad`` are cast as weights, ``gradient`` and ``dgrad`` as gradients, all others as activations.
        own: the fp8 format that the layer itself has the tensor in, which fp8 recipes then keep, as in Transformer Engine.
    """
    if key in _TO_FORMAT:
        return _TO_FORMAT[key]
    gemm, operand = _OPERANDS.get(tensor, ("fprop", "activation"))
    how = _RECIPES[key].plan()[gemm, operand]
    assert how is not None
    return how if own is None or how.family == "nvfp4" else how.replace(format=own)


def cast_on_paper(tensor: Tensor, kind: str, cells: Tensor, layout: Layout, own: Format | None = None) -> bool:
    """Merge what casts would do to a tensor into its extras' cells; returns whether it could be read.

    Args:
        tensor: any. A complex number counts as two neighboring elements. Integers are cast from float64.
        kind: ``activation``, ``weight``, …: decides on blocks and formats.
        cells: float64[layout.width] on the tensor's device.
        own: as for ``how_of``.

    *Cost:* one pass per cast, two if its scales need the whole tensor's amax first; no sync.
    """
    return not layout.has_casts or read(tensor, lambda readable: _cast_on_paper(readable, kind, cells, layout, own))


def _cast_on_paper(x: Tensor, kind: str, cells: Tensor, layout: Layout, own: Format | None) -> None:
    if x.layout is not torch.strided:
        x = x.to_dense()
    if x.is_complex():
        x = torch.view_as_real(x.resolve_conj()).flatten(-2)
    if not x.is_floating_point():
        x = x.to(torch.float64)
    if not x.numel():
        return
    if x.element_size() == 1:
        x = x.to(torch.float32)
    for extra in layout.extras:
        if extra.kind == "cast":
            first = layout.offsets[extra.key]
            how, columnwise = how_of(extra.key.removesuffix("_columnwise"), kind, own), extra.key.endswith("_columnwise")
            mine, counts = cells[first : first + extra.width], empty_cells(x.device)
            is_whole = extra.width == len(counts)
            scale = 1.0 if extra.key in UNSCALED else None
            cast(x, how, scale=scale, columnwise=columnwise, values=False, cells=mine if is_whole else counts)
            if not is_whole:
                mine += counts[ERRORS]
