"""Statistics of any combination of sites and steps: what one pass over all those tensors together would give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numscope.config.plan import group_of
from numscope.records.checks import check_whole
from numscope.records.errors import UsageError
from numscope.records.observation import FIELDS
from numscope.records.words import nearest
from numscope.runs.folder import Run
from numscope.runs.merging import about_one_center, merged_sql
from numscope.runs.query import RAW, by_name, columns_of, extra_columns, make_table, quoted, reading
from numscope.summary.formulas import Statistic
from numscope.summary.state import Summary
from numscope.summary.statistics import STATISTICS, statistic_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

WAYS = ("layer", "name", "type", "tensor", "all")
EVERYTHING = "all"

Value = float | int | None | list[float]


@dataclass(frozen=True, slots=True)
class MergedGroup:
    """Sites and steps together."""

    name: str  # the group's name
    tensor: str  # the kind of its tensors; "" where several kinds were merged
    first_step: int  # the first merged step
    last_step: int  # the last merged step
    num_rows: int  # number of merged observations: sites times steps
    summary: Summary  # over all their elements
    # their further columns, without those that some of the rows lack
    extras: Mapping[str, float | list[float]]
    values: Mapping[str, Value]  # the statistics asked for; None where one is undefined or lacks its columns


def group(
    run: Run,
    by: str,
    stats: Sequence[str] = ("max", "min", "mean", "std"),
    *,
    steps: tuple[int | None, int | None] = (None, None),
    every_steps: int | None = None,
) -> list[MergedGroup]:
    """Statistics of groups of sites over some steps, merged exactly.

    Args:
        by: ``layer``: all of one number (``decoder.layers.3``); ``name``: each by its whole name; ``type``: each class; these and a
            regex keep kinds of tensors apart; ``tensor``: each kind of tensor over all layers; ``all``: one group of everything. Else a
            regex that is searched for in layers' names: what its groups matched, joined by dots, names the group;
            without groups all that it matched.
        stats: names of statistics, in their order.
        steps: first and last step, both included; None: no bound.
        every_steps: a group for each so many steps (``1``: for each step); None: all steps together.

    Raises: UsageError.
    """
    asked = [statistic_of(name) for name in stats]
    if every_steps is not None:
        check_whole("every_steps", every_steps, 1)

    def merged(connection: DuckDBPyConnection) -> list[MergedGroup]:
        make_table(connection, "grouped", dict.fromkeys(("layer", "cls", "place"), "VARCHAR"), _places(connection, by))
        return _merged(connection, by, asked, steps, every_steps)

    return reading(run, merged, raw_only=True)


def available(run: Run) -> tuple[str, ...]:
    """The statistics whose columns the run has."""
    columns = reading(run, lambda connection: set(columns_of(connection)), raw_only=True)
    return tuple(name for name, s in STATISTICS.items() if extra_columns(s) <= columns)


def _places(connection: DuckDBPyConnection, by: str) -> list[tuple[str, str, str]]:
    """(layer, class, name of its group) of each layer that is in one."""
    layers = connection.execute(f"SELECT DISTINCT layer, cls FROM {RAW} ORDER BY ALL").fetchall()
    try:
        found = [(layer, cls, place) for layer, cls in layers if (place := group_of(by, layer, cls)) is not None]
    except re.error as error:
        at = "" if error.pos is None else f" at position {error.pos}"
        raise UsageError(f"got {by!r}, expected one of {', '.join(WAYS)}, or a regex; as a regex: {error.msg}{at}.", "by") from None
    if not found and by not in WAYS:
        hint = nearest(by, [*WAYS, *(layer for layer, _ in layers)], 3) or (f" Such as {layers[0][0]}." if layers else "")
        expected = f"one of {', '.join(WAYS)}, or a regex found in the name of some layer of the run."
        raise UsageError(f"got {by!r}, expected {expected}{hint}", "by")
    return found


# A site that one section wants merged over ranks and another one rank by rank has both kinds of rows: the merged ones hold it all.
_ONCE = "QUALIFY ranks = max(ranks) OVER (PARTITION BY step, layer, tensor)"


def _merged(
    connection: DuckDBPyConnection,
    by: str,
    stats: Sequence[Statistic],
    steps: tuple[int | None, int | None],
    every_steps: int | None,
) -> list[MergedGroup]:
    columns = columns_of(connection)
    wanted = dict.fromkeys(name for s in stats for name in sorted(extra_columns(s)) if name in columns)
    lists = [name for name in wanted if columns[name].endswith("[]")]
    numbers = [name for name in wanted if name not in lists]
    kind = "''" if by == EVERYTHING else "split_part(tensor, '[', 1)"
    period = "0" if every_steps is None else f"(step - {steps[0] or 0}) // {every_steps}"
    bounds = [f"step {sign} {int(bound)}" for sign, bound in zip((">=", "<="), steps, strict=True) if bound is not None]
    several = connection.execute(f"SELECT max(ranks) > 1 FROM {RAW}").fetchone() == (True,)
    connection.execute(
        f"CREATE TEMP VIEW apart AS SELECT {RAW}.*, place, {kind} AS kind, {period} AS period FROM {RAW} JOIN grouped USING (layer, cls)"
        + (f" WHERE {' AND '.join(bounds)}" if bounds else "")
        + (f" {_ONCE}" if several else "")
    )
    connection.execute(f"CREATE TEMP VIEW chosen AS {about_one_center('apart', 'place, kind, period')}")
    merged = merged_sql(numbers)
    found = by_name(
        connection,
        "SELECT place, kind, period, min(step) AS first_step, max(step) AS last_step, count(*) AS num_rows, "
        + ", ".join(f"{sql} AS {quoted('merged_' + name)}" for name, sql in merged.items())
        + " FROM chosen GROUP BY place, kind, period ORDER BY period, min(step), min(ord), place, kind",
    )
    histograms = {name: _histograms(connection, name) for name in lists}
    groups = []
    for row in found:
        place, kind = row["place"], row["kind"]
        summary = Summary(**{name: row["merged_" + name] for name in FIELDS})
        extras = {name: row["merged_" + name] for name in numbers if row["merged_" + name] is not None}
        for name, by_group in histograms.items():
            counts, num_rows = by_group.get((place, kind, row["period"]), ([], 0))
            if num_rows == row["num_rows"]:
                extras[name] = counts
        try:
            values = {s.name: s.value(summary, extras) if extra_columns(s) <= set(extras) else None for s in stats}
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # such as a negative count
            raise UsageError(f"RUN: {place or kind} holds numbers that no tensor has ({error}).") from error
        groups.append(MergedGroup(place or kind, kind, row["first_step"], row["last_step"], row["num_rows"], summary, extras, values))
    return groups


def _histograms(connection: DuckDBPyConnection, name: str) -> dict[tuple[Any, ...], tuple[list[float], int]]:
    """A column of lists merged by adding element by element: (place, kind, period) → (counts, how many rows have it)."""
    column = quoted(name)
    rows = connection.execute(
        f"SELECT place, kind, period, list(total ORDER BY bin), max(num_rows) FROM ("
        f" SELECT place, kind, period, bin, sum(element) AS total, count(*) AS num_rows FROM ("
        f"  SELECT place, kind, period, unnest({column}) AS element, generate_subscripts({column}, 1) AS bin FROM chosen"
        f" ) GROUP BY place, kind, period, bin) GROUP BY place, kind, period"
    ).fetchall()
    return {tuple(key): (counts, num_rows) for *key, counts, num_rows in rows}


def lacking(groups: Iterable[MergedGroup]) -> list[str]:
    """The statistics that some group lacks because not all of its rows have their columns."""
    names: dict[str, None] = {}
    for one in groups:
        names.update((name, None) for name in one.values if not extra_columns(STATISTICS[name]) <= set(one.extras))
    return list(names)
