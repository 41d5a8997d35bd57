"""Statistics of a run as matrices, sites by columns of steps, each cell the extreme over its steps and ranks."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from numscope.page.axis import Axis, make_axis
from numscope.records.words import spans
from numscope.runs.query import LOSS, RATES, RAW, VIEW, by_name, column_of, columns_of, make_table, quoted
from numscope.summary.statistics import STATISTICS

KEPT_BITS = 11  # fraction bits of rounded numbers: each number of float16 and bfloat16 stays exact


def pack(values: Any) -> str:
    """A float32 array as text: its bytes by significance (all first bytes, then all second ones), deflated, in base64.

    Bytes of one significance are alike, so they compress well.
    """
    planes = np.ascontiguousarray(values, dtype="<f4").view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")


def as_float32(values: Any) -> Any:
    """Float64 numbers as float32: what is beyond its range becomes its largest or smallest number, neither infinite nor zero."""
    largest, least = float(np.finfo(np.float32).max), float(np.finfo(np.float32).smallest_subnormal)
    values = np.asarray(values, dtype=np.float64)
    inside = np.clip(values, -largest, largest)
    tiny = (inside != 0) & (np.abs(inside) < least)
    return np.where(tiny, np.copysign(least, inside), inside).astype(np.float32)


def rounded(values: Any) -> Any:
    """Float32 numbers with a fraction of ``KEPT_BITS`` bits, to nearest: off by 1/4096 at most, and far smaller when compressed."""
    drop = 23 - KEPT_BITS
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    finite = np.isfinite(values)
    up = (bits + np.uint32(1 << (drop - 1))) & ~np.uint32((1 << drop) - 1)
    near = up.view(np.float32)
    cut = (bits & ~np.uint32((1 << drop) - 1)).view(np.float32)
    return np.where(finite, np.where(np.isfinite(near), near, cut), values)


if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_RATES = 6  # that a page shows; of 64 groups at most
MAX_LOSSES = 4
MAX_SITES = 5000
EXACT_CELLS = 1_000_000  # in all matrices together; up to so many are kept exactly
ROUNDED_CELLS = 1_800_000  # otherwise so many, rounded: about 4 MB in a page
MAX_STATISTICS = 14
EXTREMES = ("max", "min")

FINITE = "numel - num_nan - num_pos_inf - num_neg_inf"


@dataclass(frozen=True, slots=True)
class ShownStatistic:
    """A statistic that a page shows."""

    name: str  # in ``numscope stats``; the first two stand for several columns
    label: str  # for people
    unit: str  # as in the statistics' table; ``value``: the tensor's own unit
    worst: str = "max"  # the extreme of several steps that a map shows
    both: bool = False  # the other extreme is kept too
    sql: str = ""  # where it is no column of ``stats``


def _of(name: str, label: str, worst: str = "max", both: bool = False) -> ShownStatistic:
    return ShownStatistic(name, label, STATISTICS[name].unit, worst, both)


# Ordered by how much they explain: if a run has more, the last ones are left out.
KINDS = (
    ShownStatistic("amax", "largest magnitude (amax)", "value", both=True, sql="abs_max"),
    ShownStatistic("num_nonfinite", "nan and inf", "count", sql="num_nan + num_pos_inf + num_neg_inf"),
    _of("abs_min", "smallest non-zero magnitude", "min"),
    _of("rms", "root mean square", both=True),
    _of("zero_pct", "zeros"),
    _of("subnormal_pct", "subnormals of the dtype"),
    _of("kurtosis", "kurtosis"),
    _of("e4m3_underflows_pct", "underflow in e4m3"),
    _of("e5m2_underflows_pct", "underflow in e5m2"),
    _of("fp16_underflows_pct", "underflow in fp16"),
    _of("bf16_underflows_pct", "underflow in bf16"),
    _of("fp16_overflows_pct", "overflow in fp16"),
    _of("e4m3_overflows_pct", "overflow in e4m3"),
    _of("e5m2_overflows_pct", "overflow in e5m2"),
    _of("e4m3_sqnr_db", "signal to noise in e4m3", "min"),
    _of("e5m2_sqnr_db", "signal to noise in e5m2", "min"),
    _of("bf16_sqnr_db", "signal to noise in bf16", "min"),
    _of("update_weight_ratio", "update / weight"),
    _of("grad_weight_ratio", "gradient / weight"),
    _of("lost_updates_pct", "updates lost to rounding"),
    _of("bf16_lost_updates_pct", "updates that bf16 would lose"),
    _of("adam_v_underflow_pct", "underflow of Adam's second moment"),
    _of("momentum_agreement_pct", "momentum agrees with gradient", "min"),
    _of("max_blockwise_dynamic_range", "widest range of a block"),
    _of("attention_entropy", "attention entropy", "min"),
    _of("attention_max", "largest attention"),
    _of("spectral_norm", "largest singular value"),
    _of("stable_rank", "stable rank", "min"),
)


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A row of the matrices: a tensor of a layer."""

    layer: str
    cls: str
    tensor: str
    dtype: str
    numel: int  # the most of one step
    ranks: int


@dataclass(frozen=True, slots=True)
class Matrices:
    """A run's statistics."""

    axis: Axis  # the columns
    sites: tuple[SiteRow, ...]  # the rows, in execution order
    num_sites: int  # how many the run has; those beyond ``MAX_SITES`` are left out
    # the statistics that the run has, and in ``values`` under (name, extreme) a float32 array of sites × columns, nan where there is none
    kinds: tuple[ShownStatistic, ...]
    values: dict[tuple[str, str], Any]
    is_rounded: bool  # whether values are right to four digits only
    # by model, the largest and the smallest of each column, nan where it was not finite or is not known
    losses: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    rates: Mapping[str, Any] = field(default_factory=dict)  # the largest learning rate of each column, by the groups that have it


def read_matrices(connection: DuckDBPyConnection, findings: Sequence[int]) -> Matrices:
    """A run's statistics.

    Args:
        connection: from ``runs.query.connect``. The tables ``page_sites`` (layer, tensor, site: the row of the matrices) and ``page_steps``
            (step, col) are left there.
        findings: steps with findings: around them each step has its own column.

    *Cost:* two passes over the rows in DuckDB: 10 million take some seconds.
    """
    sites, num_sites, kinds = _read_sites(connection)
    rows = ((site.layer, site.tensor, row) for row, site in enumerate(sites))
    make_table(connection, "page_sites", {"layer": "VARCHAR", "tensor": "VARCHAR", "site": "BIGINT"}, rows)
    steps = sorted({*column_of(connection, f"SELECT DISTINCT step FROM {RAW}"), *findings})
    num_cells = max(1, len(sites) * (len(kinds) + sum(kind.both for kind in kinds)))
    is_rounded = num_cells * len(steps) > EXACT_CELLS
    axis = make_axis(steps, ROUNDED_CELLS // num_cells if is_rounded else len(steps), findings)
    axis.make_table(connection, "page_steps")
    wanted = [(k, extreme) for k in kinds for extreme in EXTREMES if extreme == k.worst or (k.both and axis.is_binned)]
    values = _read_cells(connection, wanted, (len(sites), len(axis)))
    if is_rounded:
        values = {key: rounded(matrix) for key, matrix in values.items()}
    return Matrices(axis, sites, num_sites, kinds, values, is_rounded, _read_losses(connection, axis), _read_rates(connection, axis))


def _read_sites(connection: DuckDBPyConnection) -> tuple[tuple[SiteRow, ...], int, tuple[ShownStatistic, ...]]:
    """The sites of a page in execution order, of too many those with the worst numbers; how many there are; the statistics they have."""
    there = columns_of(connection, VIEW)
    known = [kind for kind in KINDS if kind.sql or kind.name in there]
    has = ", ".join(f"coalesce(bool_or({_sql(kind)} <> 0), false) AS has{i}" for i, kind in enumerate(known))
    rows = by_name(
        connection,
        f"""
        SELECT *, count(*) OVER () AS num FROM (
            SELECT layer, tensor, arg_max(cls, step) AS cls, arg_max(dtype, step) AS dtype, coalesce(max(numel), 0)::BIGINT AS numel,
                greatest(max(ranks), count(DISTINCT rank)) AS ranks, min(ord) FILTER (ord >= 0) AS place, min(step) AS first_step,
                max(num_nan + num_pos_inf + num_neg_inf) > 0 AS bad, max(abs_max) AS amax, {has}
            FROM {VIEW} GROUP BY layer, tensor
        ) ORDER BY bad DESC NULLS LAST, amax DESC NULLS LAST, layer, tensor LIMIT {MAX_SITES}
        """,
    )
    rows.sort(key=lambda row: (row["place"] is None, row["place"], row["first_step"], row["layer"], row["tensor"]))
    sites = tuple(SiteRow(**{name: row[name] for name in SiteRow.__slots__}) for row in rows)
    always = ("amax", "num_nonfinite")
    kinds = [kind for i, kind in enumerate(known) if kind.name in always or any(row[f"has{i}"] for row in rows)]
    return sites, rows[0]["num"] if rows else 0, tuple(kinds[:MAX_STATISTICS])


def _sql(kind: ShownStatistic) -> str:
    value = f"CAST({kind.sql or quoted(kind.name)} AS DOUBLE)"
    return f"CASE WHEN NOT isnan({value}) THEN {value} END"


def _read_cells(
    connection: DuckDBPyConnection, wanted: Sequence[tuple[ShownStatistic, str]], shape: tuple[int, int]
) -> dict[tuple[str, str], Any]:
    """The matrices by statistic and extreme."""
    values = ", ".join(f"{_sql(kind)} AS {quoted(kind.name)}" for kind in dict.fromkeys(kind for kind, _ in wanted))
    cells = ", ".join(f"{extreme}({quoted(kind.name)}) AS c{i}" for i, (kind, extreme) in enumerate(wanted))
    found = connection.execute(f"""
        SELECT site, col, {cells} FROM (
            SELECT site, col, {values} FROM {VIEW} JOIN page_sites USING (layer, tensor) JOIN page_steps USING (step)
        ) GROUP BY site, col
    """).fetchnumpy()
    place = found["site"], found["col"]
    return {(kind.name, extreme): placed(shape, place, found[f"c{i}"]) for i, (kind, extreme) in enumerate(wanted)}


def placed(shape: tuple[int, ...], place: Any, numbers: Any) -> Any:
    """A float32 array of these numbers at their places, nan elsewhere.

    Args:
        place: for each dimension of the shape the numbers' indices.
        numbers: as DuckDB gives them, masked where they are NULL.
    """
    made = np.full(shape, np.nan, dtype=np.float32)
    made[tuple(np.asarray(indices) for indices in place)] = as_float32(np.ma.filled(numbers, np.nan))
    return made


def _read_losses(connection: DuckDBPyConnection, axis: Axis) -> dict[str, tuple[Any, Any]]:
    found = by_name(
        connection,
        f'SELECT layer, list(col) AS col, list("max") AS "max", list("min") AS "min" FROM (SELECT layer, col, max("max") AS "max", '
        f'min("min") AS "min", min(ord) AS ord FROM {RAW} JOIN page_steps USING (step) WHERE tensor = ? AND numel = 1 GROUP BY ALL) '
        f"GROUP BY layer ORDER BY min(ord), layer LIMIT {MAX_LOSSES}",
        LOSS,
    )
    return {one["layer"]: tuple(placed((len(axis),), (one["col"],), one[extreme]) for extreme in EXTREMES) for one in found}


def _read_rates(connection: DuckDBPyConnection, axis: Axis) -> dict[str, Any]:
    """The learning rates by the numbers of the optimizers' groups that have them: those with the same ones share a line."""
    if columns_of(connection).get(RATES) != "DOUBLE[]":
        return {}
    found = connection.execute(
        f"SELECT place - 1 AS place, col, max(rate) AS rate FROM (SELECT col, unnest({RATES}[:64]) AS rate, "
        f"generate_subscripts({RATES}[:64], 1) AS place FROM {RAW} JOIN page_steps USING (step) WHERE tensor = ? AND numel = 1) "
        "WHERE isfinite(rate) GROUP BY place, col",
        [LOSS],
    ).fetchnumpy()
    alike: dict[bytes, tuple[list[int], Any]] = {}
    for group, cells in enumerate(placed((64, len(axis)), (found["place"], found["col"]), found["rate"])):
        if not np.isnan(cells).all():
            alike.setdefault(cells.tobytes(), ([], cells))[0].append(group)
    lines = list(alike.values())[:MAX_RATES]
    return {", ".join(f"{a}–{b}" if b > a else str(a) for a, b in spans(groups)): cells for groups, cells in lines}
