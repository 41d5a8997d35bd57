"""SQL over a run: DuckDB, embedded, over the view ``stats``, with nothing else in reach."""

from __future__ import annotations

import functools
import glob
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from numscope.records.errors import UsageError
from numscope.records.observation import COUNTS, EXTREMA, SUMS
from numscope.records.words import one_of, without_passwords
from numscope.runs.folder import Run, find_run, found_unsound
from numscope.runs.sources import Remote
from numscope.storage.address import PROTOCOL, text_of
from numscope.summary.formulas import Statistic
from numscope.summary.statistics import RAW_SUMS, SHARED, STATISTICS, of_shared

if TYPE_CHECKING:
    import pandas
    from duckdb import DuckDBPyConnection

T = TypeVar("T")
log = logging.getLogger("numscope")

VIEW = "stats"
RAW = "raw"  # without the derived columns, and with what these are computed from
STEPS = "steps"  # a row a step: its loss, its learning rate
EVERY = "every_row"  # as stored, with the steps that a later attempt ran again
NEVER_NULL = ("step", "layer", "cls", "tensor", "dtype", "rank", "attempt", "ranks")
NUM_READERS = 16  # threads that read from another storage: they mostly wait
MAX_ROWS_PER_BYTE = 40  # a real part has at most 11, of rows that are all alike: a row group of 65,536 takes 6 KB of the footer
MANY_PARTS, MOST_HELD_BYTES = 512, 256 << 20  # so many parts of so few bytes are read into memory: a GB at most
_TYPES = dict.fromkeys(("step", "ord", "rank", "attempt", "ranks", "calls", *COUNTS), "BIGINT")
_TYPES |= dict.fromkeys(("layer", "cls", "tensor", "dtype"), "VARCHAR") | dict.fromkeys((*EXTREMA, *SUMS, "center"), "DOUBLE")
_TYPES["time"] = "TIMESTAMP"
_NUMBERS = ("DOUBLE", "BIGINT")
_INTERNAL = frozenset(("center", *(name for name in SUMS)))  # together with the columns of statistics beyond the summary
LOSS = "loss"  # the layer and the tensor that stand for it
OPTIMIZER = "optimizer_"  # columns of its rows: a setting of each optimizer's group
RATES = f"{OPTIMIZER}lr"
_STEPS_SQL = f"""SELECT step, avg(CASE WHEN num_nan > 0 THEN 'nan'::DOUBLE WHEN num_pos_inf > 0 THEN 'inf'::DOUBLE
    WHEN num_neg_inf > 0 THEN '-inf'::DOUBLE ELSE "max" END) FILTER (tensor = '{LOSS}' AND numel = 1) AS loss,
    max(rate) AS learning_rate FROM (SELECT *, CASE WHEN tensor = '{LOSS}' THEN {{rate}} END AS rate FROM {RAW}) GROUP BY step"""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A result: its columns' names, and its rows as Python values."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def connect(run: Run, held: bool = False, raw_only: bool = False, **config: Any) -> DuckDBPyConnection:
    """A connection to the run's numbers and to nothing else: no other file, no network, no extension, no variable of this program.

    It holds ``raw``, the stored columns; ``stats``, every statistic that follows from them, and those of them that people ask for; and
    ``steps``, each step's loss and learning rate. Of a step that a restarted job ran twice, they hold the later attempt.

    Args:
        held: many questions follow, so that many small parts are read into memory first: else each question opens them all.
        raw_only: leave out ``stats`` and ``steps``, whose hundred expressions take DuckDB a third of the time to connect.
        config: DuckDB's settings.

    Raises: UsageError where DuckDB is not installed.
    """
    connection = bare(**config)
    if run.ranges is not None:
        try:
            run.ranges.begin(part.name for part in run.parts if part.name in run.ranges.listed)
        except FileNotFoundError:  # merged just now
            raise
        except Exception as error:  # whatever a storage's package raises
            raise UsageError(f"RUN: {run.path!r} could not be read: {text_of(error)}") from None
        connection.register_filesystem(run.ranges)
        if isinstance(run.source, Remote):
            connection.execute(f"SET threads = {NUM_READERS}")
    paths = run.paths
    patterns = [glob.escape(path) for path in paths]  # DuckDB asks for both: the pattern first, then what it found
    connection.execute(f"SET allowed_paths = [{strings(dict.fromkeys(paths + patterns))}]")
    connection.execute("SET enable_external_access = false")
    source = f"read_parquet([{strings(patterns)}], union_by_name = true, hive_partitioning = false)"
    columns = columns_of(connection, source)
    _check_types(run, columns)
    _check_rows(run, connection)
    rows = f"SELECT s.* FROM {source} s"
    if held and len(run.parts) >= MANY_PARTS and run.num_bytes <= MOST_HELD_BYTES:
        connection.execute(f"CREATE TEMP TABLE {EVERY} AS {rows}")
        rows = f"SELECT s.* FROM {EVERY} s"
    else:
        connection.execute(f"CREATE VIEW {EVERY} AS {rows}")
    if run.restarted:  # without the steps that a later attempt of the same rank ran again
        connection.execute(f"CREATE TEMP TABLE starts AS SELECT rank, attempt, min(step) AS step FROM {EVERY} GROUP BY ALL")
        rows += " ANTI JOIN starts l ON l.rank = s.rank AND l.attempt > s.attempt AND l.step <= s.step"
    connection.execute(f"CREATE VIEW stored AS {rows} WHERE {' AND '.join(f'{name} IS NOT NULL' for name in NEVER_NULL)}")
    connection.execute(f"CREATE VIEW {RAW} AS SELECT *, {_listed(RAW_SUMS)} FROM stored")
    if not raw_only:
        _make_views(connection, columns | dict.fromkeys(RAW_SUMS, "DOUBLE"))
    connection.execute("SET lock_configuration = true")
    return connection


def _make_views(connection: DuckDBPyConnection, stored: Mapping[str, str]) -> None:
    asked = {name: quoted(name) for name in stored if not is_internal(name)}
    asked |= {name: of_shared(sql) for name, sql in derivable(set(stored)).items()}
    connection.execute(f"CREATE VIEW {VIEW} AS SELECT {_listed(asked)} FROM (SELECT *, {_listed(SHARED)} FROM {RAW})")
    rate = f"(SELECT max(x) FROM unnest({RATES}) AS groups(x) WHERE isfinite(x))" if stored.get(RATES) == "DOUBLE[]" else "NULL::DOUBLE"
    connection.execute(f"CREATE VIEW {STEPS} AS {_STEPS_SQL.format(rate=rate)}")


def ask(run: Run, sql: str) -> QueryResult:
    """The result of one query over the view ``stats``.

    Raises: UsageError for what is no single SELECT, and for what DuckDB refuses, with the nearest columns.
    """

    def rows(connection: DuckDBPyConnection) -> QueryResult:
        result = _execute(connection, sql)
        return QueryResult(tuple(column[0] for column in result.description or ()), result.fetchall())

    return reading(run, rows)


def frame_of(run: str | os.PathLike[str], sql: str = f"SELECT * FROM {VIEW} ORDER BY step, rank, ord") -> pandas.DataFrame:
    """The result of a query as a DataFrame; see ``numscope.load``."""
    try:
        import pandas  # noqa: F401  # the error comes before the folder is read
    except ImportError:
        raise UsageError("numscope.load: pandas is not installed. Install it: pip install 'numscope[runs]'.") from None
    found = find_run(run, "run")
    for problem in found.problems:
        log.warning("numscope.load: %s", problem)
    frame: pandas.DataFrame = reading(found, lambda connection: _execute(connection, sql).df())
    return frame


def reading(run: Run, work: Callable[[DuckDBPyConnection], T], choose: Callable[[Run], Run] = lambda run: run, **config: Any) -> T:
    """Runs ``work`` on a connection to the run and returns its result; DuckDB's errors become UsageError.

    A run that still goes on may merge parts between being listed and being read: then it is listed again. So it is where bytes of a
    compacted part are not those that were written: it is left out then, which is logged.

    Args:
        choose: narrows a listed run to the part that is read.
        config: see ``connect``.
    """
    duckdb = _duckdb()
    while True:
        try:
            chosen = choose(run)
            try:
                with connect(chosen, **config) as connection:
                    try:
                        return work(connection)
                    except duckdb.Error as error:
                        if chosen.is_there and not _damaged(chosen):
                            _explain(error, connection)
            except duckdb.Error as error:
                if chosen.is_there and not _damaged(chosen):
                    raise UsageError(f"RUN: {run.path!r} could not be read: {_reason(error)}") from None
        except FileNotFoundError as error:  # merged, too
            if run.is_there:
                raise UsageError(f"RUN: {run.path!r} could not be read: {error}") from None
        known, run = run.problems, find_run(run.path)
        for problem in run.problems:
            if problem not in known:
                log.warning("numscope: %s", problem)


def _damaged(run: Run) -> set[str]:
    """Names of parts that were found damaged as they were read. They are remembered."""
    damaged = run.ranges.damaged if run.ranges is not None else set()
    found_unsound(run, damaged)
    return damaged


def derivable(columns: set[str]) -> dict[str, str]:
    """The statistics that follow from these columns, and are none of them: name → SQL."""
    found = {}
    for name, statistic in STATISTICS.items():
        if statistic.sql is not None and extra_columns(statistic) <= columns and statistic.sql.strip('"') != name:
            found[name] = statistic.sql
    return found


def extra_columns(statistic: Statistic) -> set[str]:
    """The columns that a statistic needs besides a summary's."""
    extra = statistic.extra(())
    return set() if extra is None else set(extra.columns)


@functools.cache
def _extras() -> frozenset[str]:
    return frozenset().union(*map(extra_columns, STATISTICS.values())) - STATISTICS.keys()


def is_internal(column: str) -> bool:
    """Whether a column of ``raw`` is only there for statistics to be computed from it."""
    return column in _INTERNAL or column.startswith(OPTIMIZER) or column in _extras()


def columns_of(connection: DuckDBPyConnection, table: str = RAW) -> dict[str, str]:
    """The types of a table's columns, by name."""
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE FROM {table}").fetchall()}


def by_name(connection: DuckDBPyConnection, sql: str, *values: object) -> list[dict[str, Any]]:
    """A query's rows, each with its columns by name."""
    result = connection.execute(sql, list(values))
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def column_of(connection: DuckDBPyConnection, sql: str, *values: object) -> list[Any]:
    return [value for (value,) in connection.execute(sql, list(values)).fetchall()]


def make_table(connection: DuckDBPyConnection, name: str, columns: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> None:
    """Make a temporary table of these rows, in place of one of that name. One insert a row would take 0.1 ms each.

    Args:
        columns: types by name.
    """
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in columns.items())})")
    if values := [list(column) for column in zip(*rows, strict=True)]:
        unnested = ", ".join(f"unnest(CAST(? AS {kind}[]))" for kind in columns.values())
        connection.execute(f"INSERT INTO {name} SELECT {unnested}", values)


def quoted(name: str) -> str:
    """A column's name as SQL has it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def _listed(expressions: Mapping[str, str]) -> str:
    return ", ".join(f"{sql} AS {quoted(name)}" for name, sql in expressions.items())


def _check_types(run: Run, columns: Mapping[str, str]) -> None:
    """Raises: UsageError for columns that are missing or of another type than a run's: nothing is computed from such a file."""
    wrong = [f"{name} {columns.get(name, 'missing')}, expected {kind}" for name, kind in _TYPES.items() if columns.get(name) != kind]
    for name, kind in columns.items():
        if name not in _TYPES and kind.removesuffix("[]") not in _NUMBERS:
            wrong.append(f"{name} {kind}, expected numbers")
    if wrong:
        raise UsageError(f"RUN: {run.path!r} holds columns of other types than a run's: {'; '.join(wrong[:3])}.")


def _check_rows(run: Run, connection: DuckDBPyConnection) -> None:
    """Raises: UsageError for files that unpack into far more rows than a run's: a few bytes can stand for billions."""
    num_bytes = run.num_bytes
    files = strings(map(glob.escape, run.paths))
    (num_rows,) = connection.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata([{files}])").fetchall()[0]
    if num_rows > num_bytes * MAX_ROWS_PER_BYTE:
        raise UsageError(f"RUN: {run.path!r} holds {num_rows} rows in {num_bytes} bytes, expected at most {MAX_ROWS_PER_BYTE} a byte.")


def _execute(connection: DuckDBPyConnection, sql: str) -> DuckDBPyConnection:
    duckdb = _duckdb()
    is_text = sql.isascii() or sql.encode(errors="replace").decode() == sql
    statements = connection.extract_statements(sql) if is_text else ()
    if len(statements) != 1 or statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise UsageError(f"SQL: got {sql!r}, expected one SELECT over the view {VIEW}: a run is read, never changed.")
    return connection.execute(statements[0])


def _explain(error: Exception, connection: DuckDBPyConnection) -> NoReturn:
    """DuckDB's complaint in the house's form, with the nearest columns of the run's own."""
    kind, _, rest = str(error).partition(": ")
    if rest.startswith("Traceback"):  # a storage's error
        raise UsageError(f"RUN: could not be read: {_reason(error)}") from None
    message = rest.split("\n")[0] or kind
    missing = re.search(r'(?:column|Column)[^"]*"([^"]+)"', message)
    if missing and ("not found" in message or "does not" in message):
        if is_internal(missing[1]) and missing[1] in columns_of(connection):
            raise UsageError(f"SQL: got the column {missing[1]!r} of statistics' sums, which is in the view {RAW}.") from None
        columns = columns_of(connection, VIEW)
        raise UsageError(f"SQL: got the column {missing[1]!r}, expected {one_of(missing[1], columns, 3)}") from None
    table = re.search(r"Table with name (\S+) does not exist", message)
    if table:
        raise UsageError(f"SQL: got the table {table[1]!r}, expected {VIEW}, {STEPS} or {RAW}.") from None
    pointed = "\n".join(line for line in rest.split("\n")[1:] if line.strip())
    raise UsageError(f"SQL: {message}" + (f"\n{pointed}" if pointed else "")) from None


def _reason(error: Exception) -> str:
    """The text of DuckDB's error; for a storage's error, which DuckDB shows as a traceback, its own text."""
    text = re.sub(rf"{PROTOCOL}://\w+/", "", str(error)).partition("\nLINE ")[0].strip()
    raised = re.findall(r"^\w[\w.]*: .*", text.partition("Traceback")[2], re.MULTILINE)
    return without_passwords(raised[0]) if raised else text


def strings(texts: Iterable[str]) -> str:
    """Texts as SQL has them, with commas in between."""
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)


def bare(**config: Any) -> DuckDBPyConnection:
    """An empty connection that loads no extensions and knows no variables of this program.

    Raises: UsageError where DuckDB is not installed.
    """
    config |= dict.fromkeys(("autoinstall_known_extensions", "autoload_known_extensions", "python_enable_replacements"), False)
    connection: DuckDBPyConnection = _duckdb().connect(config=config)
    return connection


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise UsageError("duckdb is not installed, which reads runs. Install it: pip install 'numscope[runs]'.") from None
    return duckdb
