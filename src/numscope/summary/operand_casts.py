"""Statistics of casts: the cells that casting fills, and the statistics computed from them.

Statistics of the casts that a layer's GEMMs make of their operands are exact: they are counted during quantization with its own scale,
and no further cast is made. A tensor that several GEMMs take in one form (an activation, by one scale for forward and backward) is cast
once and counts once. Other statistics are of casts on paper, with current or block scales.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from numscope.summary.extras import Extra
from numscope.summary.formulas import Needs, Statistic, Value, nonzero, pct, ratio, where

TENSORS = ("activation", "gradient", "weight")
CELLS = ("numel", "num_underflow", "num_overflow", "square_error", "max_scale", "max_scale_inv")  # as cast() fills them
NUM_CELLS = len(CELLS)
CAST_STATS = ("underflows_pct", "overflows_pct", "mse", "scale_inv_min", "scale_inv_max")  # names without the cast's


def _extra(key: str, kind: Literal["operand", "cast"] = "operand", cells: slice = slice(None)) -> Extra:
    return Extra(key, tuple(f"{key}_{cell}" for cell in CELLS[cells]), kind=kind)


# Casts that GEMMs make, by family and orientation: fp8's and NVFP4's are kept apart, so that neither can be taken for the other.
EXTRAS: dict[tuple[str, str], Extra] = {
    ("fp8", "rowwise"): _extra("operand"),
    ("fp8", "columnwise"): _extra("operand_columnwise"),
    ("nvfp4", "rowwise"): _extra("operand_nvfp4"),
    ("nvfp4", "columnwise"): _extra("operand_nvfp4_columnwise"),
}

# Casts on paper of unconverted tensors, made by numscope/precision/gemm/counting.py: to one format, and as recipes cast.
TO_FORMAT: dict[str, str] = {
    "e4m3": "cast to e4m3 by the tensor's own scale, 448 / amax",
    "e5m2": "cast to e5m2 by the tensor's own scale, 57344 / amax",
    "fp16": "cast to fp16 as it is",
    "bf16": "cast to bf16 as it is",
}
UNSCALED = ("fp16", "bf16")  # what overflows becomes an infinity, and has no error
ERRORS = slice(1, 4)  # the cells of casts to one format
ON_PAPER: dict[str, str] = {
    "fp8_current_scaling": "cast to fp8 (gradients e5m2, others e4m3) by the tensor's own scale, the format's maximum / amax",
    "fp8_block_scaling": "cast to e4m3 by a power of two for each 1 × 128, of weights each 128 × 128",
    "mxfp8_rceil": "cast to e4m3 by an e8m0 scale for each 1 × 32, rounded up",
    "mxfp8": "cast to e4m3 by an e8m0 scale for each 1 × 32, rounded down",
    "nvfp4": "cast to e2m1 by an e4m3 scale for each 1 × 16, of weights each 16 × 16, under one of the tensor",
}
PAPER_EXTRAS = {key: _extra(key, "cast", ERRORS) for key in TO_FORMAT} | {key: _extra(key, "cast") for key in ON_PAPER}
# The same for the transposed operand; with one scale for a whole tensor it would be the same cast.
PAPER_COLUMNWISE = {key: _extra(f"{key}_columnwise", "cast") for key in ON_PAPER if key != "fp8_current_scaling"}


def on_paper(key: str, options: Any) -> Extra:
    """The columns of a cast on paper, a key of ``PAPER_EXTRAS``; ``(("orientation", "columnwise"),)``: of the operand as a GEMM takes it
    transposed.
    """
    return PAPER_COLUMNWISE.get(key, PAPER_EXTRAS[key]) if dict(options).get("orientation") == "columnwise" else PAPER_EXTRAS[key]


def _scale_inv_min(column: str) -> Value:
    def value(summary: Any, extras: Mapping[str, Any]) -> float | None:
        largest = extras.get(column)
        return struct.unpack("f", struct.pack("f", 1.0 / largest))[0] if largest else None  # float32, like the inverse itself

    return value


def _counted(extra: Extra, how: str, needs: Needs | None = None, tensors: tuple[str, ...] = ()) -> list[Statistic]:
    """The statistics of a cast; ``needs``: its columns by the statistic's options, if there are any."""
    underflow, overflow, error = (f"{extra.key}_{cell}" for cell in CELLS[ERRORS])
    numel = f"{extra.key}_numel" if len(extra.columns) == NUM_CELLS else "numel"
    mean_error, mean_error_sql = ratio(error, numel)
    made: list[tuple[str, str, str, Value, str]] = [
        ("underflows_pct", f"100 × (non-zero finite elements that became zero) / numel, {how}", "%", *pct(underflow, numel)),
        ("overflows_pct", f"100 × (elements beyond the format's maximum) / numel, {how}", "%", *pct(overflow, numel)),
        ("mse", f"sum((x - q(x))^2) / numel, {how}", "value^2", mean_error, where(f"isfinite({error})", mean_error_sql)),
    ]  # fmt: skip
    for scale in extra.columns[4:5]:
        smallest = f"CAST(CAST(1.0 / nullif({scale}, 0) AS FLOAT) AS DOUBLE)"
        made.append(("scale_inv_min", f"smallest inverse of a scale, {how}", "value", _scale_inv_min(scale), smallest))
        made.append(("scale_inv_max", f"largest inverse of a scale, {how}", "value", *nonzero(f"{scale}_inv")))
    return [
        Statistic(f"{extra.key}_{name}", formula, unit, value, needs or (lambda options: extra), sql, tensors)
        for name, formula, unit, value, sql in made
    ]


_ORIENTED = {"rowwise": "as the GEMMs had it", "columnwise": "as the GEMMs had it along the columns"}
OF_GEMMS = [one for (_, orientation), extra in EXTRAS.items() for one in _counted(extra, _ORIENTED[orientation], tensors=TENSORS)]
OF_PAPER = {key: _counted(PAPER_EXTRAS[key], how, partial(on_paper, key)) for key, how in (TO_FORMAT | ON_PAPER).items()}
# The same along the columns, by the statistic's name: what the option ``orientation`` selects.
COLUMNWISE = {
    one.name: turned
    for key, extra in PAPER_COLUMNWISE.items()
    for one, turned in zip(OF_PAPER[key], _counted(extra, ON_PAPER[key]), strict=True)
}
