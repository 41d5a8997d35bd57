"""Where two runs, or two steps of one, begin to differ, and which modules make them drift."""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

from numscope.parity.likeness import likeness
from numscope.records.checks import check_one_of, check_whole
from numscope.records.errors import UsageError
from numscope.records.fingerprint import NUM_SUMS, Sketch
from numscope.records.words import without_passwords
from numscope.runs import divergence
from numscope.runs.align import ObservedLayer, align
from numscope.runs.divergence import STATS
from numscope.runs.folder import Run, find_run
from numscope.runs.query import RAW, bare, by_name, column_of, make_table, reading
from numscope.runs.verdicts import Calibration, Diff, SiteDifference, Verdicts
from numscope.summary.extras import SKETCH

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NUM_EARLIER_PAIRS = 8  # steps before, which calibrate a comparison of two steps of one run


log = logging.getLogger("numscope")


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a comparison: a run, or one step of it."""

    where: str  # the argument's name, for messages
    table: str  # its table's
    given: str  # as it was written
    run: Run  # the run in the folder
    step: int | None  # the one step meant; None: all

    @classmethod
    def parse(cls, where: str, given: str, table: str) -> Side:
        """Reads ``RUN`` or ``RUN:STEP``.

        Raises: UsageError where there is no run.
        """
        path, step = split_step(given)
        run = find_run(path, where)
        for problem in run.problems:
            log.warning("%s: %s", where, problem)
        return cls(where, table, given, run, step)


def split_step(given: str) -> tuple[str, int | None]:
    """The folder and the step of ``RUN:STEP``, or ``RUN`` and None; a folder whose own name ends so is taken as the folder."""
    match = re.fullmatch(r"(.+):(\d+)", given)
    return (match[1], int(match[2])) if match and not os.path.isdir(given) else (given, None)


def compare(
    a: str,
    b: str,
    *,
    noise: Sequence[str] = (),
    tolerance: float | None = None,
    stats: Sequence[str] = STATS,
    top: int = 10,
) -> Diff:
    """Compares two runs over their common steps, or two steps.

    Args:
        a, b: run folders, or ``RUN:STEP`` both.
        noise: runs that should equal A: what they differ from A and each other is noise. Two steps of one run are calibrated by the steps
            before them.
        tolerance: for all statistics, in place of the dtypes' default; with noise, the least tolerance.
        stats: which statistics are judged, of ``STATS``.
        top: how many modules and non-finite sites are kept.

    Raises:
        UsageError: no such run or step, one with a step and one without, no common step or layer, an unknown statistic.

    *Cost:* one scan of both runs' folders by DuckDB, in its memory; no tensor library is loaded.
    """
    for i, stat in enumerate(stats):
        check_one_of(f"stats[{i}]", stat, STATS)
    if not stats:
        raise UsageError(f"stats: got none, expected some of {', '.join(STATS)}.")
    if tolerance is not None and not 0 < tolerance < 1:
        raise UsageError(f"tolerance: got {tolerance}, expected a number between 0 and 1: divergences are relative.")
    check_whole("top", top, 1)
    sides = {"a": Side.parse("A", a, "a"), "b": Side.parse("B", b, "b")}
    if (sides["a"].step is None) != (sides["b"].step is None):
        lone = sides["b" if sides["a"].step is None else "a"]
        raise UsageError(f"{lone.where}: got {lone.given!r}, a step of one side alone, expected RUN:STEP for both or for none.")
    for i, run in enumerate(noise):
        name = f"noise{i}"
        sides[name] = Side.parse("noise", run, name)
        if (sides[name].step is None) != (sides["a"].step is None):
            raise UsageError(f"noise: got {run!r} to compare with {a!r}, expected a step for both or for none.")
    con = bare(enable_external_access=False, lock_configuration=True)
    import duckdb

    try:
        for name, side in sides.items():
            divergence.load(con, name, side.run)
        return _compare(con, sides, tuple(noise), tolerance, tuple(stats), top)
    except duckdb.Error as error:  # numbers that no tensor has, such as a count of 2^63
        raise UsageError(f"A, B: {a!r} and {b!r} can't be compared: {error}") from None
    finally:
        con.close()


def _compare(
    con: DuckDBPyConnection, sides: dict[str, Side], noise: tuple[str, ...], tolerance: float | None, stats: tuple[str, ...], top: int
) -> Diff:
    steps_only = _match_steps(con, "steps", sides["a"], sides["b"])
    alignment = align(_layers(con, "a"), _layers(con, "b"))
    if not alignment.pairs:
        raise UsageError(
            f"B: got a run whose layers are {', '.join(alignment.only_b[:3])}, …, "
            f"expected some of A's: {', '.join(alignment.only_a[:3])}, …."
        )
    _pairs(con, "layers", [(p.a, p.b) for p in alignment.pairs])

    dtypes = (_working_dtype(con, "a"), _working_dtype(con, "b"))
    kind: Calibration = "dtype" if tolerance is None else "tolerance"
    tolerances = divergence.default_tolerances(divergence.coarser(*dtypes))
    two_steps = sides["a"].step is not None and sides["a"].run.path == sides["b"].run.path
    calibrated = False
    if noise:
        kind, calibrated = "noise", True
        _calibrate_by_runs(con, [side for name, side in sides.items() if name != "b"])
    elif two_steps and tolerance is None:
        calibrated = _calibrate_by_earlier(con, sides)
        kind = "earlier steps" if calibrated else "steps"
    if tolerance is not None:
        tolerances = dict.fromkeys(STATS, tolerance)
    elif calibrated:
        tolerances = dict.fromkeys(STATS, divergence.LEAST)
    elif kind == "steps":
        tolerances = dict.fromkeys(STATS, divergence.STEP_TOLERANCE)
    found = Verdicts(con, stats, top)
    staged = False
    if len(column_of(con, "SELECT DISTINCT rank FROM a LIMIT 2")) > 1:
        ranks = f"SELECT DISTINCT x.rank FROM {divergence.joined('a', 'b', 'layers', 'steps')} LIMIT 2"
        staged = len(column_of(con, ranks)) > 1
    for some in divergence.portions(con, "steps", "a"):
        divergence.pair(con, "pairs", "a", "b", "layers", some)
        divergence.judge(con, tolerances, stats, calibrated=calibrated, few=kind == "dtype", staged=staged)
        found.gather()

    names = {p.a: p.b for p in alignment.pairs}
    like = "" if found.first is None else _likeness(sides["a"].run, sides["b"].run, found.first)
    return Diff(
        a=without_passwords(sides["a"].given),
        b=without_passwords(sides["b"].given),
        dtypes=dtypes,
        calibration=kind,
        noise=noise,
        tolerances=tolerances,
        stats=stats,
        pairs=alignment.pairs,
        only_a=_unmatched(con, "a", "b", names),
        only_b=_unmatched(con, "b", "a", {b: a for a, b in names.items()}),
        steps_only_a=steps_only[0],
        steps_only_b=steps_only[1],
        steps=tuple(found.steps),
        factors=tuple(found.factors),
        first_unequal=found.first_unequal,
        nonfinite=tuple(found.nonfinite),
        num_nonfinite=found.num_nonfinite,
        first=found.first,
        likeness=like,
        origin=found.origin,
        modules=found.modules(),
    )


def _likeness(a: Run, b: Run, site: SiteDifference) -> str:
    """How two tensors differ, if one rank of each run wrote them with their sketches."""
    one, other = _sketch(a, site.step_a, site.layer_a, site.tensor), _sketch(b, site.step_b, site.layer_b, site.tensor)
    return "" if one is None or other is None else likeness(one, other, same_type=False).text()  # checksums are not stored


def _sketch(run: Run, step: int, layer: str, tensor: str) -> Sketch | None:
    def read(stored: DuckDBPyConnection) -> list[tuple[Any, ...]]:
        if SKETCH.key not in column_of(stored, f"SELECT column_name FROM (DESCRIBE {RAW})"):
            return []
        columns = f"numel, num_nan + num_pos_inf + num_neg_inf, square_sum, {SKETCH.key}"
        where = "step = ? AND layer = ? AND tensor = ?"
        return stored.execute(f"SELECT {columns} FROM {RAW} WHERE {where}", [step, layer, tensor]).fetchall()

    rows = reading(run, read, raw_only=True)
    if len(rows) != 1 or rows[0][3] is None or len(rows[0][3]) != NUM_SUMS:
        return None
    numel, num_nonfinite, square_sum, sums = rows[0]
    return Sketch(numel, num_nonfinite, square_sum=square_sum, sums=tuple(sums))


def _pairs(con: DuckDBPyConnection, name: str, pairs: Iterable[tuple[object, object]]) -> None:
    """Makes a table of A's and B's names or steps."""
    kind = "BIGINT" if "steps" in name else "VARCHAR"
    make_table(con, name, {"a": kind, "b": kind}, pairs)


def _match_steps(con: DuckDBPyConnection, name: str, a: Side, b: Side) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Makes the table of steps to compare; the steps that only one side has."""
    steps = {table: column_of(con, f"SELECT DISTINCT step FROM {table} ORDER BY step") for table in {a.table, b.table}}
    for side in (a, b):
        if side.step is not None and side.step not in steps[side.table]:
            near = sorted(steps[side.table], key=lambda step: abs(step - (side.step or 0)))[:5]
            raise UsageError(
                f"{side.where}: got step {side.step}, expected one that {side.run.path!r} holds; the nearest are "
                f"{', '.join(map(str, sorted(near)))}."
            )
    if a.step is not None:
        _pairs(con, name, [(a.step, b.step)])
        return (), ()
    here, there = steps[a.table], steps[b.table]
    common = sorted(set(here) & set(there))
    if not common:
        raise UsageError(
            f"{b.where}: got steps {there[0]} to {there[-1]}, expected some of those of {a.given!r}, {here[0]} to {here[-1]}. "
            f"To compare two steps write RUN:STEP for both."
        )
    _pairs(con, name, [(step, step) for step in common])
    return tuple(s for s in here if s not in set(common)), tuple(s for s in there if s not in set(common))


def _calibrate_by_runs(con: DuckDBPyConnection, runs: Sequence[Side]) -> None:
    """Takes for noise what these runs, the first of them A, differ from each other, every two of them."""
    layers = _layers(con, "a")
    _pairs(con, "noise_layers", [(layer.name, layer.name) for layer in layers])
    for run in runs[1:]:  # under A's names
        _pairs(con, "renamed_layers", [(p.a, p.b) for p in align(layers, _layers(con, run.table)).pairs])
        renamed = f"SELECT x.* REPLACE (l.a AS layer) FROM {run.table} x JOIN renamed_layers l ON l.b = x.layer"
        con.execute(f"CREATE OR REPLACE TEMP TABLE {run.table} AS {renamed}")
    for one, other in combinations(runs, 2):
        _match_steps(con, "noise_steps", one, other)
        _add_noise(con, one.table, other.table)
    divergence.calibrate(con, cumulative=runs[0].step is None)


def _add_noise(con: DuckDBPyConnection, one: str, other: str) -> None:
    """Adds what two runs differ at ``noise_steps`` to the table ``noise_pairs``."""
    kept = ", ".join(("layer_a", "tensor", "step_a", "same", *(f"d_{stat}" for stat in STATS)))
    for some in divergence.portions(con, "noise_steps", one):
        divergence.pair(con, "noise_pair", one, other, "noise_layers", some)
        con.execute(f"CREATE TEMP TABLE IF NOT EXISTS noise_pairs AS SELECT {kept} FROM noise_pair LIMIT 0")
        con.execute(f"INSERT INTO noise_pairs SELECT {kept} FROM noise_pair")


def _calibrate_by_earlier(con: DuckDBPyConnection, sides: dict[str, Side]) -> bool:
    """Takes for noise what each step of the run changed on the one before, up to the earlier of the two steps."""
    last = min(sides["a"].step or 0, sides["b"].step or 0)
    steps = column_of(con, "SELECT DISTINCT step FROM a WHERE step <= ? ORDER BY step", last)[-NUM_EARLIER_PAIRS - 1 :]
    if len(steps) < 2:
        return False
    _pairs(con, "noise_steps", pairwise(steps))
    _pairs(con, "noise_layers", [(layer.name, layer.name) for layer in _layers(con, "a")])
    _add_noise(con, "a", "a")
    divergence.calibrate(con, cumulative=False)
    return True


def _layers(con: DuckDBPyConnection, table: str) -> list[ObservedLayer]:
    sql = f"""SELECT layer AS name, arg_min(cls, step) AS cls, list(DISTINCT tensor) AS tensors FROM {table}
              GROUP BY layer ORDER BY min(step), min(rank), min(ord) NULLS LAST, layer"""
    return [ObservedLayer(row["name"], row["cls"], frozenset(row["tensors"])) for row in by_name(con, sql)]


def _unmatched(con: DuckDBPyConnection, here: str, there: str, names: dict[str, str]) -> tuple[str, ...]:
    """Sites of one side without a counterpart, each once."""
    sql = f"SELECT layer, tensor FROM {here} GROUP BY layer, tensor ORDER BY min(step), min(rank), min(ord) NULLS LAST, layer"
    others = {(row["layer"], row["tensor"]) for row in by_name(con, f"SELECT DISTINCT layer, tensor FROM {there}")}
    return tuple(f"{row['layer']} {row['tensor']}" for row in by_name(con, sql) if (names.get(row["layer"]), row["tensor"]) not in others)


def _working_dtype(con: DuckDBPyConnection, table: str) -> str:
    """The coarsest dtype that a quarter of a run's activations (else of all its tensors) have; "" if several were merged.

    Under autocast layers of both kinds alternate and the coarse one sets the rounding of all; one layer cast by mistake is what a
    comparison should find, not what it should excuse.
    """
    for among in ("tensor IN ('activation', 'output')", "true"):
        shares = by_name(con, f"SELECT dtype, count(*) / sum(count(*)) OVER () AS share FROM {table} WHERE {among} GROUP BY dtype")
        if shares:
            many = sorted(row["dtype"] for row in shares if row["share"] >= 0.25)
            return functools.reduce(divergence.coarser, many) if many else ""
    return ""
