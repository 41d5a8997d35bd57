"""SQL by which rows merge, made from the tables that Python merges by: a summary's fields and the columns of the extras."""

from __future__ import annotations

from collections.abc import Iterable

from numscope.records.observation import COUNTS, EXTREMA, SUMS
from numscope.runs.query import quoted
from numscope.summary.extras import is_largest
from numscope.summary.statistics import moved_sql

# Sums of the parts' sums by compensated addition; where one of them has overflowed, compensation would make nan of infinity.
COMPENSATED = "CASE WHEN isfinite(sum({0})) THEN fsum({0}) ELSE sum({0}) END"
PLAIN = "sum({0})"

_WITHOUT_MOMENTS = "coalesce(bool_or(abs_min IS NOT NULL AND abs_sum = 0), false)"


def about_one_center(rows: str, by: str) -> str:
    """SQL of rows whose sums are about one center in each group: that of the row with the most elements.

    Args:
        rows: SQL to select from.
        by: the group's columns, separated by commas.
    """
    moved = ", ".join(f"{sql} AS {name}" for name, sql in moved_sql("middle").items())
    middle = f"SELECT *, arg_max(center, numel) OVER (PARTITION BY {by}) AS middle FROM {rows}"
    return f"SELECT * REPLACE ({moved}, middle AS center) FROM ({middle})"


def merged_sql(extras: Iterable[str], add: str = COMPENSATED) -> dict[str, str]:
    """SQL of the columns of many rows together, whose sums are about one center: aggregates by name.

    Args:
        extras: columns besides a summary's fields; NULL where some row lacks one.
        add: how sums add up.
    """
    merged = {name: f"CAST(sum({name}) AS BIGINT)" for name in COUNTS} | {"center": "any_value(center)"}
    merged |= {name: f"{law}({quoted(name)})" for name, law in EXTREMA.items()}
    merged |= {name: f"CASE WHEN {_WITHOUT_MOMENTS} THEN 0 ELSE {add.format(quoted(name))} END" for name in SUMS}
    for name in extras:
        law = "max({0})" if is_largest(name) else add
        merged[name] = f"CASE WHEN count({quoted(name)}) = count(*) THEN {law.format(quoted(name))} END"
    return merged
