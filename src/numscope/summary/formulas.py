"""A statistic's formula, as a Python function of merged numbers and as SQL over their columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numscope.summary.extras import Extra
from numscope.summary.state import Summary

Options = tuple[tuple[str, Any], ...]
Number = float | int | None | list[float]
Value = Callable[[Summary, Mapping[str, Any]], Number]
Needs = Callable[[Options], Extra | None]


@dataclass(frozen=True, slots=True)
class Statistic:
    """One statistic.

    Args:
        name: canonical; configurations can use other names for it.
        unit: ``value`` (the tensor's own), ``value^2``, ``count``, ``%``, ``dB``, ``log2``, ``nats``, ``ratio`` or ``counts``
            (a histogram).
        value: computes it from the summary and the named columns of the extras; None if it is undefined.
        extra: the columns that it needs besides the summary, depending on its options.
        sql: an expression over the columns of a run folder, in DuckDB's SQL, with the default options.
        tensors: the tensors that it can be computed of; empty: any.
        higher: whether it needs the sums of third and fourth powers, which are not computed otherwise.
        attribute: of the summary, where ``value`` is just that.
    """

    name: str
    formula: str
    unit: str
    value: Value
    extra: Needs = lambda options: None
    sql: str | None = None
    tensors: tuple[str, ...] = ()
    higher: bool = False
    attribute: str = ""


def where(condition: str, value: str) -> str:
    """SQL of a value that is NULL unless the condition holds."""
    return f"CASE WHEN {condition} THEN {value} END"


def ratio(part: str, whole: str) -> tuple[Value, str]:
    """One column by another, or by the summary's ``numel``; undefined without the whole, or where the part is not finite."""
    return _quotient(part, whole, 1.0), f"{part} / nullif({whole}, 0)"


def pct(part: str, whole: str) -> tuple[Value, str]:
    """The same as ``ratio``, in percent."""
    return _quotient(part, whole, 100.0), f"100.0 * {part} / nullif({whole}, 0)"


def _quotient(part: str, whole: str, factor: float) -> Value:
    def value(summary: Summary, extras: Mapping[str, Any]) -> Number:
        above, below = extras.get(part), summary.numel if whole == "numel" else extras.get(whole)
        return factor * above / below if below and above is not None and math.isfinite(above) else None

    return value


def nonzero(column: str) -> tuple[Value, str]:
    """A column that is undefined at zero."""
    return lambda summary, extras: extras.get(column) or None, f"nullif({column}, 0)"
