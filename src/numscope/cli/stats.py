"""``numscope stats``: a run's statistics, by SQL or merged by groups."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from numscope.cli.printing import note, put, say
from numscope.cli.values import json_option
from numscope.records.errors import UsageError
from numscope.records.finding import plain
from numscope.records.words import escape, nearest
from numscope.runs.columns import columns as columns_in
from numscope.runs.compaction import compact as compacted
from numscope.runs.folder import Run, find_run
from numscope.runs.grouping import available, group, lacking
from numscope.runs.hints import hints
from numscope.runs.query import ask
from numscope.sinks.logs import text_of

if TYPE_CHECKING:
    from numscope.page.matrices import Matrices
    from numscope.page.overview import Overview

MAX_FOLDED = 200  # rows of a table that is folded to fit the terminal
COLUMNS, COMPACT = "columns", "compact"  # in place of SQL
DEFAULT_STATS = ("max", "min", "mean", "std", "l2_norm", "kurtosis", "zero_pct", "num_nan", "num_inf")


@click.command(options_metavar="[options]")
@click.option(
    "--by",
    metavar="layer|name|type|tensor|all|REGEX",
    help="Merge by layer (number), whole name, class, tensor, or part of a name.",
)
@click.option("--stats", "names", metavar="NAME,NAME…", help=f"Statistics to show ({','.join(DEFAULT_STATS)}); all: all available.")
@click.option("--steps", metavar="A-B[/N]", help="Only steps A to B, inclusive; also A-, -B or A. /N: merge every N of them separately.")
@json_option("Write JSON, a list of rows")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.argument("run", metavar="RUN")
@click.argument("sql", required=False, metavar="[SQL | columns | compact]")
def stats(run: str, sql: str | None, by: str | None, names: str | None, steps: str | None, json_to: str | None, as_csv: bool) -> None:
    """Query a run's statistics by SQL over its views, or merge them exactly by groups of layers and steps.

    RUN is the run's log_dir. Without SQL and --by: what numscope top shows, and questions ready to run; with --json or --csv, what
    there is of each class. columns: the views and their columns, each with its unit and meaning. compact: make few sorted
    parts of the run's many, so that questions take less time.

    \b
    numscope stats runs/a "SELECT step, l2_norm FROM stats WHERE layer = 'fc1' AND tensor = 'wgrad' ORDER BY step"
    numscope stats runs/a "SELECT step, loss, abs_max FROM stats JOIN steps USING (step) WHERE layer = 'fc1'"
    numscope stats runs/a --by '.*(fc1|fc2)' --stats mean,std,kurtosis --steps 100-199
    """
    if json_to is not None and as_csv:
        raise UsageError("--csv: given with --json, expected one of them.")
    if sql is not None and by is not None:
        raise UsageError("--by: given with SQL, expected one of them.")
    if sql == COMPACT:
        if (names, steps, json_to, as_csv) != (None, None, None, False):
            raise UsageError(f"{COMPACT}: given with a question, expected it alone.")
        say(f"numscope: {compacted(run)}")
        return
    if sql is not None and re.fullmatch(r"[\w./\\~-]+", sql) and sql != COLUMNS:  # no question is one word, or a path
        to_print = f" --csv prints: numscope stats {escape(shlex.quote(run))} --csv > {sql}" if as_csv else ""
        raise UsageError(f"got {sql!r}, expected SQL, {COLUMNS} or {COMPACT}.{to_print or nearest(sql, (COLUMNS, COMPACT))}", "SQL")
    for option, value in (("--stats", names), ("--steps", steps)):
        if by is None and value is not None:
            raise UsageError(f"{option}: given without --by, which it needs. In SQL, use SELECT and WHERE.")
    found = find_run(run)
    for problem in found.problems:
        note(problem)
    if found.restarted and sql is None:
        attempts = sorted({part.attempt for part in found.parts})
        note(
            f"the run was started more than once (attempts {', '.join(map(str, attempts))}). "
            "Of a step that was run again, the last attempt's numbers are shown."
        )
    if by is None and sql is None and json_to is None and not as_csv:
        from numscope.cli.top import print_once

        overview = print_once(run)
        if overview.matrices is not None:
            say("\nAsk:")
            for question in _questions(overview, overview.matrices):
                say(f"  numscope stats {escape(shlex.quote(run))} {question}")
        return
    columns: Sequence[str]
    if by is not None:
        columns, rows = _grouped(found, by, names, steps)
    else:
        result = columns_in(found) if sql == COLUMNS else ask(found, _OVERVIEW if sql is None else sql)
        columns, rows = result.columns, result.rows
    if json_to is not None:
        put(json_to, _json_of(columns, rows))
    elif as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows(map(_cell, row) for row in (columns, *rows))
    else:
        _print_table(columns, rows)
    for text in hints(found, sql, result) if sql is not None else ():
        note(text)


_OVERVIEW = """
    SELECT cls, split_part(tensor, '[', 1) AS tensor, count(DISTINCT layer) AS layers,
        count(DISTINCT step) AS steps, min(step) AS first_step, max(step) AS last_step, greatest(count(DISTINCT rank), max(ranks)) AS ranks,
        count(*) AS rows, sum(num_nan)::BIGINT AS num_nan, sum(num_inf)::BIGINT AS num_inf
    FROM stats GROUP BY ALL ORDER BY ALL
"""


def _questions(overview: Overview, matrices: Matrices) -> Iterator[str]:
    """About the worst tensor; about all layers near the end; about all classes; about what there is."""
    site = matrices.sites[max(range(len(matrices.sites)), key=lambda i: overview.health[i].score)]
    layer, tensor = (name.replace("'", "''") for name in (site.layer, site.tensor))
    sql = f"SELECT step, abs_max, num_nan, num_inf FROM stats WHERE layer = '{layer}' AND tensor = '{tensor}' ORDER BY step"
    yield escape(shlex.quote(sql) if set(sql) & set('"$`\\!') else f'"{sql}"')
    last = matrices.axis.last[-1]
    yield f"--by name --stats max,min,num_nan,num_inf --steps {max(0, last - 9)}-{last}"
    yield "--by type"
    yield COLUMNS


def _grouped(run: Run, by: str, names: str | None, steps: str | None) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
    bounds, every_steps = _bounds(steps)
    if names is None:
        chosen: Sequence[str] = DEFAULT_STATS
    elif names == "all":
        chosen = available(run)
    else:
        chosen = [name.strip() for name in names.split(",")]
    try:
        groups = group(run, by, chosen, steps=bounds, every_steps=every_steps)
    except UsageError as error:
        raise UsageError(error.text, {"by": "--by", "statistic": "--stats"}.get(error.place, error.place)) from None
    if not groups:
        note("the run has no statistics of these layers at these steps.")
    missing = lacking(groups)
    if missing:
        note(f"{', '.join(missing)}: left empty for groups in which some layer or step lacks the columns it needs.")
    columns = ("group", "tensor", "first_step", "last_step", "rows", "numel", *chosen)
    rows = [
        (one.name, one.tensor, one.first_step, one.last_step, one.num_rows, one.summary.numel, *(one.values[name] for name in chosen))
        for one in groups
    ]
    return columns, rows


def _bounds(steps: str | None) -> tuple[tuple[int | None, int | None], int | None]:
    """The first and the last step, and how many are merged; None where there is no bound, and where all are."""
    if steps is None:
        return (None, None), None
    match = re.fullmatch(r"\s*(\d*)\s*(-?)\s*(\d*)\s*(?:/\s*([1-9]\d*)\s*)?", steps)
    if match is None or not (match[1] or match[3] or (match[4] and not match[2])):
        raise UsageError(f"--steps: got {steps!r}, expected A-B, A-, -B or A, steps from 0, and /N behind it or alone.")
    first = int(match[1]) if match[1] else None
    last = first if not match[2] else int(match[3]) if match[3] else None
    if first is not None and last is not None and last < first:
        raise UsageError(f"--steps: got {steps!r}, expected the first step first. Did you mean {last}-{first}?")
    return (first, last), int(match[4]) if match[4] else None


def _json_of(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Rows as objects; nan and infinities are the strings "nan", "inf", "-inf", as in all of numscope's JSON."""
    last = len(rows) - 1
    for place, row in enumerate(rows):
        text = json.dumps(dict(zip(columns, map(plain, row), strict=True)), allow_nan=False, default=_plain)
        yield f"{'[' if place == 0 else ' '}{text}{']' if place == last else ','}\n"
    if not rows:
        yield "[]\n"


def _plain(value: Any) -> float | str:
    return float(value) if isinstance(value, Decimal) else str(value)  # 1.5 in SQL is a decimal


def _cell(value: Any) -> Any:
    """Text from a run that can neither color a terminal nor be a formula: spreadsheets run those of files that they open."""
    if not isinstance(value, str):
        return value
    text = escape(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    is_number = [any(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
    head = [escape(name) for name in columns]
    cells = [[escape(_shown(value)) for value in row] for row in rows]
    if sys.stdout.isatty() and len(rows) <= MAX_FOLDED:
        _fold_table(head, cells, is_number)
        return
    # In a pipe or a file a table can have any width.
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    for line in (head, *cells):
        padded = (c.rjust(w) if right else c.ljust(w) for c, w, right in zip(line, widths, is_number, strict=True))
        sys.stdout.write(f"{'  '.join(padded).rstrip()}\n")


def _fold_table(head: Sequence[str], cells: Sequence[Sequence[str]], is_number: Sequence[bool]) -> None:
    """A table that fits the terminal's width. *Cost:* a millisecond a row."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for part, columns in enumerate(_bands(head, cells, is_number, console.width)):
        if part:
            console.print()
        table = Table(box=None, header_style="bold", pad_edge=False)
        for i in columns:
            table.add_column(Text(head[i]), justify="right" if is_number[i] else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(row[i]) for i in columns))
        console.print(table)


def _bands(head: Sequence[str], cells: Sequence[Sequence[str]], is_number: Sequence[bool], width: int) -> list[list[int]]:
    """Groups of columns that fit a width without breaking numbers; each group repeats the text columns at the table's beginning."""
    widths = [
        min(max(map(len, column)), width if number else width // 4) + 2 for *column, number in zip(head, *cells, is_number, strict=True)
    ]
    num_keys = next((i for i, number in enumerate(is_number) if number), 0)
    keys = list(range(num_keys)) if sum(widths[:num_keys]) <= width // 2 else []
    rest = range(len(keys), len(head))
    bands = [list(keys)]
    for i in rest:
        if len(bands[-1]) > len(keys) and sum(widths[k] for k in (*bands[-1], i)) - 2 > width:
            bands.append(list(keys))
        bands[-1].append(i)
    return bands


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"  # JSON and CSV have all digits
    if isinstance(value, list):
        return text_of(value) if len(value) == 256 else ", ".join(map(_shown, value))
    return str(value)
