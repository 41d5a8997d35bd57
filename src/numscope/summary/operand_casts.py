"""Statistics of casts: the cells that casting fills, and the statistics computed from them.

Statistics of the casts that a layer's GEMMs make of their operands are exact: they are counted during quantization with its own scale,
and no further cast is made. A tensor that several GEMMs take in one form (an activation, by one scale for forward and backward) is cast
once and counts once. Other statistics are of casts on paper, with current or block scales.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from numscope.summary.extras import Extra

TENSORS = ("activation", "gradient", "weight")
CELLS = ("numel", "num_underflow", "num_overflow", "square_error", "max_scale", "max_scale_inv")  # as cast() fills them
NUM_CELLS = len(CELLS)
CAST_STATS = (
    "underflows_pct",
    "overflows_pct",
    "mse",
    "scale_inv_min",
    "scale_inv_max",
)  # of a cast's statistics, without what is before them
IS_MAX = (False,) * 4 + (True,) * 2

Value = float | None
Row = tuple[str, str, str, Callable[[Any, Mapping[str, Any]], Value], Callable[[Any], Extra], str]


def _extra(key: str, kind: Literal["operand", "cast"] = "operand") -> Extra:
    return Extra(key, tuple(f"{key}_{cell}" for cell in CELLS), (1,) * NUM_CELLS, IS_MAX, kind=kind)


# Casts that GEMMs make, by family and orientation: fp8's and NVFP4's are kept apart, so that neither can be taken for the other.
EXTRAS: dict[tuple[str, str], Extra] = {
    ("fp8", "rowwise"): _extra("operand"),
    ("fp8", "columnwise"): _extra("operand_columnwise"),
    ("nvfp4", "rowwise"): _extra("operand_nvfp4"),
    ("nvfp4", "columnwise"): _extra("operand_nvfp4_columnwise"),
}

# Casts on paper of unconverted tensors, made by numscope/precision/gemm/counting.py.
ON_PAPER: dict[str, str] = {
    "fp8_current_scaling": "cast to fp8 (gradients e5m2, others e4m3) by the tensor's own scale, the format's maximum / amax",
    "fp8_block_scaling": "cast to e4m3 by a power of two for each 1 × 128, of weights each 128 × 128",
    "mxfp8_rceil": "cast to e4m3 by an e8m0 scale for each 1 × 32, rounded up",
    "mxfp8": "cast to e4m3 by an e8m0 scale for each 1 × 32, rounded down",
    "nvfp4": "cast to e2m1 by an e4m3 scale for each 1 × 16, of weights each 16 × 16, under one of the tensor",
}
PAPER_EXTRAS = {key: _extra(key, "cast") for key in ON_PAPER}
# The same for the transposed operand; with one scale for a whole tensor it would be the same cast.
PAPER_COLUMNWISE = {key: _extra(f"{key}_columnwise", "cast") for key in ON_PAPER if key != "fp8_current_scaling"}


def way_of(statistic: str) -> str | None:
    """The key in ``ON_PAPER`` of a cast's statistic; None for another statistic. ``mxfp8_rceil`` comes before ``mxfp8`` there."""
    return next((key for key in ON_PAPER if statistic.startswith(f"{key}_")), None)


def on_paper(key: str, options: Any) -> Extra:
    """The columns of a cast on paper.

    Args:
        key: of ``ON_PAPER``.
        options: ``(("orientation", "columnwise"),)``: of the operand as a GEMM takes it transposed.
    """
    return PAPER_COLUMNWISE.get(key, PAPER_EXTRAS[key]) if dict(options).get("orientation") == "columnwise" else PAPER_EXTRAS[key]


def turned(key: str, value: Callable[[Any, Mapping[str, Any]], Any], options: Any) -> Callable[[Any, Mapping[str, Any]], Any]:
    """The function that computes a statistic of a cast on paper from the columns that its options select."""
    here, there = PAPER_EXTRAS[key].columns, on_paper(key, options).columns
    if here == there:
        return value
    pairs = list(zip(here, there, strict=True))
    return lambda summary, extras: value(summary, {mine: extras[its] for mine, its in pairs if its in extras})


def _pct(part: str, numel: str) -> Callable[[Any, Mapping[str, Any]], Value]:
    return lambda summary, extras: 100.0 * extras[part] / extras[numel] if extras.get(numel) else None


def _mse(error: str, numel: str) -> Callable[[Any, Mapping[str, Any]], Value]:
    def value(summary: Any, extras: Mapping[str, Any]) -> Value:
        return extras[error] / extras[numel] if extras.get(numel) and math.isfinite(extras[error]) else None

    return value


def _scale_inv_max(column: str) -> Callable[[Any, Mapping[str, Any]], Value]:
    return lambda summary, extras: extras.get(column) or None


def _scale_inv_min(column: str) -> Callable[[Any, Mapping[str, Any]], Value]:
    def value(summary: Any, extras: Mapping[str, Any]) -> Value:
        largest = extras.get(column)
        return struct.unpack("f", struct.pack("f", 1.0 / largest))[0] if largest else None  # float32, like the inverse itself

    return value


def _rows(extra: Extra, how: str, needs: Callable[[Any], Extra] | None = None) -> list[Row]:
    key = extra.key
    numel, underflow, overflow, error, scale, scale_inv = extra.columns
    made: list[tuple[str, str, str, Callable[[Any, Mapping[str, Any]], Value], str]] = [
        ("underflows_pct", f"100 × (non-zero finite elements that became zero) / numel, {how}", "%",
         _pct(underflow, numel), f"100.0 * {underflow} / nullif({numel}, 0)"),
        ("overflows_pct", f"100 × (elements beyond the format's maximum) / numel, {how}", "%",
         _pct(overflow, numel), f"100.0 * {overflow} / nullif({numel}, 0)"),
        ("mse", f"sum((x - q(x))^2) / numel, {how}", "value^2",
         _mse(error, numel), f"CASE WHEN isfinite({error}) THEN {error} / nullif({numel}, 0) END"),
        ("scale_inv_min", f"smallest inverse of a scale, {how}", "value",
         _scale_inv_min(scale), f"CAST(CAST(1.0 / nullif({scale}, 0) AS FLOAT) AS DOUBLE)"),
        ("scale_inv_max", f"largest inverse of a scale, {how}", "value",
         _scale_inv_max(scale_inv), f"nullif({scale_inv}, 0)"),
    ]  # fmt: skip
    return [(f"{key}_{name}", formula, unit, value, needs or (lambda options: extra), sql) for name, formula, unit, value, sql in made]


_ORIENTED = {"rowwise": "as the GEMMs had it", "columnwise": "as the GEMMs had it along the columns"}
ROWS: tuple[Row, ...] = tuple(row for (_, orientation), extra in EXTRAS.items() for row in _rows(extra, _ORIENTED[orientation]))
PAPER_ROWS: dict[str, list[Row]] = {key: _rows(PAPER_EXTRAS[key], how, partial(on_paper, key)) for key, how in ON_PAPER.items()}
