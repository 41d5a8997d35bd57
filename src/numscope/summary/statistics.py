"""The available statistics: name, formula, requirements, and their computation from merged numbers in Python and in SQL.

All are over the finite elements; percentages are of all elements. docs/statistics.md has the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from numscope.records.errors import UsageError
from numscope.records.words import nearest, one_of
from numscope.summary import operand_casts
from numscope.summary.extras import ATTENTION, DYNAMICS, EXPONENTS, SIGNS, SKETCH, SPECTRAL, Extra, blockwise
from numscope.summary.formulas import Number, Options, Statistic, Value, nonzero, pct, ratio, where
from numscope.summary.state import ROUNDING, TINY, TOLERANCE, Summary

Named = Mapping[str, Any]


class AskedFor(Protocol):
    """A statistic as a configuration requests it: ``config.plan.StatRequest``, which is in a room above."""

    @property
    def statistic(self) -> str: ...

    @property
    def options(self) -> Options: ...


# ---- SQL: the same formulas over columns. min, max and sum are names of functions, so they are quoted.

_FINITE = "(numel - num_nan - num_pos_inf - num_neg_inf)"
_HAS_MOMENTS = f"({_FINITE} > 0 AND (abs_min IS NULL OR abs_sum <> 0))"
_N = f"nullif(CAST({_FINITE} AS DOUBLE), 0)"  # Spark raises at a division by zero
_DEV = f"(dev_sum / {_N})"  # the mean's distance from the center
_SQUARE = f"(dev_square_sum / {_N})"
_MEAN = f"(center + {_DEV})"
_VAR = f"({_SQUARE} - {_DEV} * {_DEV})"
_THIRD = f"(dev_cube_sum / {_N} - 3 * {_DEV} * {_SQUARE} + 2 * {_DEV} * {_DEV} * {_DEV})"
_FOURTH = f"(dev_fourth_sum / {_N} - 4 * {_DEV} * (dev_cube_sum / {_N}) + 6 * {_DEV} * {_DEV} * {_SQUARE} - 3 * pow({_DEV}, 4))"
# What many formulas share, each after what holds it. A query that computes these as columns is planned in a third of the time.
SHARED = {"shared variance": _VAR, "shared square": _SQUARE, "shared deviation": _DEV, "shared n": _N, "shared finite": _FINITE}


def of_shared(sql: str) -> str:
    """A formula over the columns ``SHARED``."""
    for name, part in SHARED.items():
        sql = sql.replace(part, f'"{name}"')
    return sql


def _moments_sql(value: str, *sums: str) -> str:
    return where(" AND ".join([_HAS_MOMENTS, *(f"isfinite({name})" for name in sums)]), value)


# A sum of squares that neither overflowed nor underflowed nor is hidden by rounding errors.
_KNOWS_SQUARES = (
    f"(isfinite(square_sum) AND (abs_max = 0 OR 3 * {ROUNDING} * (dev_square_sum + {_N} * center * center) + {_N} * {TINY} "
    f"<= {TOLERANCE} * square_sum))"
)


def _norm_sql(value: str, total: str) -> str:
    known = _KNOWS_SQUARES if total == "square_sum" else f"isfinite({total})"
    return where(f"({_FINITE} = 0 OR ({_HAS_MOMENTS} AND {known}))", value)


def moved_sql(to: str) -> dict[str, str]:
    """SQL of the sums about another center, given as SQL too, by their columns' names."""
    d, n = f"(center - ({to}))", _N
    moved = {
        "dev_sum": f"dev_sum + {d} * {n}",
        "dev_square_sum": f"dev_square_sum + {d} * (2 * dev_sum + {d} * {n})",
        "dev_cube_sum": f"dev_cube_sum + {d} * (3 * dev_square_sum + {d} * (3 * dev_sum + {d} * {n}))",
        "dev_fourth_sum": f"dev_fourth_sum + {d} * (4 * dev_cube_sum + {d} * (6 * dev_square_sum + {d} * (4 * dev_sum + {d} * {n})))",
    }
    return {name: f"CASE WHEN {d} = 0 THEN {name} ELSE {sql} END" for name, sql in moved.items()}


_HAS_SUMS = f"({_FINITE} = 0 OR {_HAS_MOMENTS})"  # a run without a configuration stores zeros in their place
RAW_SUMS = dict(
    zip(("sum", "square_sum", "cube_sum", "fourth_sum"), (where(_HAS_SUMS, sql) for sql in moved_sql("0").values()), strict=True)
)


# What rounding errors hide is NULL, by the rules of ``Summary``.
_VARIES = f'("min" < "max" AND 3 * {ROUNDING} * {_SQUARE} + {TINY} <= {TOLERANCE} * {_VAR})'
_SPREAD = ("dev_sum", "dev_square_sum")
_STD_SQL = _moments_sql(f'CASE WHEN "min" = "max" THEN 0 WHEN {_VARIES} THEN sqrt({_VAR}) END', *_SPREAD)
_SAMPLE_STD_SQL = where(
    f"{_FINITE} > 1",
    _moments_sql(f'CASE WHEN "min" = "max" THEN 0 WHEN {_VARIES} THEN sqrt({_VAR} * ({_N} / nullif({_N} - 1, 0))) END', *_SPREAD),
)
_SKEWNESS = f"({_THIRD} / ({_VAR} * sqrt({_VAR})))"
_FARTHEST = 'greatest("max" - center, center - "min")'
_KNOWS_SKEWNESS = (
    f"10 * {ROUNDING} * {_SQUARE} * {_FARTHEST} + {TINY} <= {TOLERANCE} * greatest(1, abs({_SKEWNESS})) * {_VAR} * sqrt({_VAR})"
)
_SKEWNESS_SQL = where(_VARIES, _moments_sql(where(_KNOWS_SKEWNESS, _SKEWNESS), *_SPREAD, "dev_cube_sum"))
_KNOWS_KURTOSIS = f"20 * {ROUNDING} * (dev_fourth_sum / {_N}) + {TINY} <= {TOLERANCE} * {_FOURTH}"
_KURTOSIS_SQL = where(
    _VARIES, _moments_sql(where(_KNOWS_KURTOSIS, f"{_FOURTH} / ({_VAR} * {_VAR})"), *_SPREAD, "dev_cube_sum", "dev_fourth_sum")
)


# ---- values


def _ratio_to_weight(column: str) -> Value:
    def value(summary: Summary, extras: Named) -> Number:
        square = extras.get(column)
        norm = summary.l2_norm
        return math.sqrt(square) / norm if square is not None and math.isfinite(square) and norm and math.isfinite(norm) else None

    return value


def _block_options(options: Options) -> Extra:
    given = dict(options)
    unknown = sorted(set(given) - set(_BLOCK_DEFAULTS))
    if unknown:
        expected = f"one of {', '.join(_BLOCK_DEFAULTS)}.{nearest(unknown[0], _BLOCK_DEFAULTS)}"
        raise UsageError(f"max_blockwise_dynamic_range: got option {unknown[0]!r}, expected {expected}")
    chosen = {**_BLOCK_DEFAULTS, **given}
    return blockwise(chosen["block_size"], chosen["dims"], chosen["max_over_orientations"])


_BLOCK_DEFAULTS: dict[str, Any] = {"block_size": 32, "dims": 1, "max_over_orientations": True}


def _block_value(column: str) -> Value:
    return lambda summary, extras: extras.get(column) if summary.numel else None


def _exponents(summary: Summary, extras: Named) -> Number:
    counts = extras.get("exponents")
    return None if counts is None else list(counts)


# ---- the table


def _simple(name: str, formula: str, unit: str, sql: str, of: str = "", higher: bool = False) -> Statistic:
    attribute = of or name
    return Statistic(name, formula, unit, lambda summary, extras: getattr(summary, attribute), sql=sql, higher=higher, attribute=attribute)


def _paper_casts(key: str, how: str) -> list[Statistic]:
    """Statistics of a cast on paper, with its signal-to-noise ratio as the fourth. The ratio is None where an element is not finite, since
    such a one spoils the scale of others, and where the noise would be infinite."""
    error, overflow = f"{key}_square_error", f"{key}_num_overflow"
    overflows_to_inf = key in operand_casts.UNSCALED

    def value(summary: Summary, extras: Named) -> Number:
        noise, signal = extras.get(error), summary.known_square_sum
        if not noise or not math.isfinite(noise) or summary.num_nonfinite or (overflows_to_inf and extras[overflow]):
            return None
        return 10.0 * (math.log10(signal) - math.log10(noise)) if signal else None

    defined = [_HAS_MOMENTS, _KNOWS_SQUARES, "square_sum > 0", f"isfinite({error})", f"{error} > 0", f"{_FINITE} = numel"]
    defined += [f"{overflow} = 0"] if overflows_to_inf else []
    sql = where(" AND ".join(defined), f"10 * (log10(square_sum) - log10({error}))")
    needs = partial(operand_casts.on_paper, key)
    ratio = Statistic(f"{key}_sqnr_db", f"10 log10(sum(x^2) / sum((x - q(x))^2)), {how}", "dB", value, needs, sql)
    rows = operand_casts.OF_PAPER[key]
    return [*rows[:3], ratio, *rows[3:]]


def _dynamics(name: str, formula: str, unit: str, value: Value, sql: str, extra: Extra = DYNAMICS) -> Statistic:
    return Statistic(name, formula, unit, value, lambda options: extra, sql, tensors=("weight",))


def _ratio_sql(column: str) -> str:
    defined = [_HAS_MOMENTS, "square_sum > 0", _KNOWS_SQUARES, f"isfinite({column})"]
    return where(" AND ".join(defined), f"sqrt({column}) / sqrt(square_sum)")


def _spectral_norm(summary: Summary, extras: Named) -> float | None:
    return extras.get("largest_singular_value") or None if summary.num_finite == summary.numel else None


def _stable_rank(summary: Summary, extras: Named) -> float | None:
    largest, total = _spectral_norm(summary, extras), summary.known_square_sum
    return None if largest is None or total is None else total / largest / largest


_KNOWS_SPECTRAL = f"{_FINITE} = numel AND largest_singular_value > 0"

_ENTROPY, _MOST_ATTENTION = ratio("attention_entropy_sum", "attention_rows"), nonzero("attention_largest")

_LIST: list[Statistic] = [
    _simple("max", "largest element", "value", '"max"'),
    _simple("min", "smallest element", "value", '"min"'),
    _simple("mean", "sum(x) / n", "value", _moments_sql(_MEAN, "dev_sum")),
    _simple("std", "sqrt(sum((x - mean)^2) / n), of the population", "value", _STD_SQL),
    _simple("sample_std", "sqrt(sum((x - mean)^2) / (n - 1)), of a sample", "value", _SAMPLE_STD_SQL),
    _simple("l1_norm", "sum(|x|)", "value", _norm_sql("abs_sum", "abs_sum")),
    _simple("l2_norm", "sqrt(sum(x^2))", "value", _norm_sql("sqrt(square_sum)", "square_sum")),
    _simple("cur_amax", "largest magnitude", "value", "abs_max", of="amax"),
    _simple("dynamic_range", "log2(largest magnitude) - log2(smallest non-zero magnitude)", "log2",
            where("abs_max > 0 AND abs_min > 0", "log2(abs_max) - log2(abs_min)")),
    _simple("abs_min", "smallest non-zero magnitude", "value", "abs_min"),
    _simple("rms", "sqrt(sum(x^2) / n)", "value", where(f"{_HAS_MOMENTS} AND {_KNOWS_SQUARES}", f"sqrt(square_sum / {_N})")),
    _simple("skewness", "mean((x - mean)^3) / std^3", "ratio", _SKEWNESS_SQL, higher=True),
    _simple("kurtosis", "mean((x - mean)^4) / std^4; 3 for a normal distribution", "ratio", _KURTOSIS_SQL, higher=True),
    _simple("num_nan", "elements that are nan", "count", "num_nan"),
    _simple("num_inf", "elements that are inf or -inf", "count", "num_pos_inf + num_neg_inf"),
    _simple("zero_pct", "100 × zeros / numel", "%", "100.0 * num_zero / nullif(numel, 0)"),
    _simple("subnormal_pct", "100 × subnormals of the tensor's dtype / numel", "%", "100.0 * num_subnormal / nullif(numel, 0)"),
    Statistic("exponent_histogram", "finite elements by the exponent bits of float32; zeros and magnitudes below 2^-126 in bin 0", "counts",
              _exponents, lambda options: EXPONENTS, "exponents"),
    Statistic("max_blockwise_dynamic_range", "max over blocks of log2(largest magnitude) - log2(smallest non-zero magnitude)", "log2",
              _block_value("block32_dynamic_range"), _block_options, where("numel > 0", "block32_dynamic_range")),
    *(one for key, how in (operand_casts.TO_FORMAT | operand_casts.ON_PAPER).items() for one in _paper_casts(key, how)),
    _dynamics("grad_weight_ratio", "l2_norm(gradient) / l2_norm(weight)", "ratio",
              _ratio_to_weight("grad_square"), _ratio_sql("grad_square")),
    _dynamics("update_weight_ratio", "l2_norm(new weight - weight) / l2_norm(weight)", "ratio",
              _ratio_to_weight("update_square"), _ratio_sql("update_square")),
    _dynamics("lost_updates_pct", "100 × (updates that leave the weight as it was) / (updates that are not zero)", "%",
              *pct("num_lost_updates", "num_updates")),
    _dynamics("bf16_lost_updates_pct", "the same, were weights and additions bf16", "%",
              *pct("bf16_num_lost_updates", "bf16_num_updates")),
    _dynamics("adam_v_underflow_pct", "100 × (elements of Adam's second moment that underflowed) / its elements", "%",
              *pct("v_num_underflow", "v_numel")),
    _dynamics("momentum_agreement_pct", "100 × (gradient and momentum have one sign) / (elements where neither is zero)", "%",
              *pct("num_signs_agreeing", "num_signs"), SIGNS),
    Statistic("attention_entropy", "mean over rows of -sum(p ln p), each row divided by its sum", "nats",
              _ENTROPY[0], lambda options: ATTENTION, _ENTROPY[1], ("attention",)),
    Statistic("attention_max", "largest probability, each row divided by its sum", "ratio",
              _MOST_ATTENTION[0], lambda options: ATTENTION, _MOST_ATTENTION[1], ("attention",)),
    Statistic("spectral_norm", "largest singular value of the matrix", "value", _spectral_norm,
              lambda options: SPECTRAL, where(_KNOWS_SPECTRAL, "largest_singular_value"), ("weight", "wgrad")),
    Statistic("stable_rank", "sum(x^2) / spectral_norm^2", "ratio", _stable_rank,
              lambda options: SPECTRAL, where(f"{_KNOWS_SPECTRAL} AND {_HAS_MOMENTS} AND {_KNOWS_SQUARES}",
                                               "square_sum / largest_singular_value / largest_singular_value"), ("weight", "wgrad")),
    Statistic("sketch", "32 signed sums, by which two runs' tensors are compared; only in a run's folder", "value",
              lambda summary, extras: None, lambda options: SKETCH, "sketch", ("weight", "wgrad")),
    *operand_casts.OF_GEMMS,
]  # fmt: skip
STATISTICS: dict[str, Statistic] = {statistic.name: statistic for statistic in _LIST}


def statistic_of(name: str) -> Statistic:
    """The statistic with a canonical name. Raises: UsageError: the table has no such name."""
    if name not in STATISTICS:
        raise UsageError(f"got {name!r}, expected {one_of(name, STATISTICS)}", "statistic")
    return STATISTICS[name]


def extra_of(asked: AskedFor) -> Extra | None:
    """The columns that a statistic needs besides the summary; None if it needs none."""
    return statistic_of(asked.statistic).extra(asked.options)


def formula_of(asked: AskedFor) -> Value:
    """The function that computes a statistic from a summary and its extra columns (as from ``Layout.named``).

    Raises: UsageError: the statistic is unknown, or an option is out of range.
    """
    statistic = statistic_of(asked.statistic)
    if asked.options and statistic.name == "max_blockwise_dynamic_range":
        return _block_value(_block_options(asked.options).columns[0])
    if dict(asked.options).get("orientation") == "columnwise":
        return operand_casts.COLUMNWISE.get(statistic.name, statistic).value
    return statistic.value
