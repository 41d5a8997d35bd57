"""Statistics of a run as matrices, sites by columns of steps, each cell the extreme over its steps and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numscope.page.axis import LEAST, Axis, make_axis
from numscope.page.columns import as_float32, rounded
from numscope.runs.query import VIEW, columns_of, quoted
from numscope.summary.statistics import STATISTICS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_SITES = 5000
EXACT_CELLS = 1_000_000  # of all matrices together: so many are kept as they are
ROUNDED_CELLS = 1_800_000  # otherwise so many, rounded: about 4 MB in a page
MAX_STATISTICS = 14
MAX_TRIED = 100  # steps

FINITE = "numel - num_nan - num_pos_inf - num_neg_inf"


@dataclass(frozen=True, slots=True)
class Kind:
    """A statistic that a page shows.

    Args:
        name: in ``numscope stats``; the first two stand for several columns.
        label: for people.
        unit: of its values, as in the statistics' table, ``value`` is the tensor's own.
        worst: which extreme of several steps a map shows: the largest or the smallest.
        both: the other extreme is kept too.
        sql: where it is no column of ``stats``.
    """

    name: str
    label: str
    unit: str
    worst: str = "max"
    both: bool = False
    sql: str = ""


def _of(name: str, label: str, worst: str = "max", both: bool = False) -> Kind:
    return Kind(name, label, STATISTICS[name].unit, worst, both)


# By how much they explain: of a run that has more, the last ones are left out.
KINDS = (
    Kind("amax", "largest magnitude (amax)", "value", both=True, sql="abs_max"),
    Kind("num_nonfinite", "nan and inf", "count", sql="num_nan + num_pos_inf + num_neg_inf"),
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
    """A run's statistics.

    Args:
        axis: the columns.
        sites: the rows, in execution order.
        num_sites: how many the run has; those beyond ``MAX_SITES`` are left out.
        kinds: the statistics that the run has, and in ``values`` under (name, extreme) a float32 array of sites × columns, nan where
            there is none.
        is_rounded: whether values are right to four digits only.
    """

    axis: Axis
    sites: tuple[SiteRow, ...]
    num_sites: int
    kinds: tuple[Kind, ...]
    values: dict[tuple[str, str], Any]
    is_rounded: bool


def read_matrices(connection: DuckDBPyConnection, findings: Sequence[int]) -> Matrices:
    """The matrices of a run, over all its ranks.

    Args:
        connection: from ``runs.query.connect``. The tables ``page_sites`` (layer, tensor, site) and ``page_steps`` (step, col) are left
            there.
        findings: steps with findings: around them each step has its own column.

    *Cost:* one pass over the run's rows in DuckDB: 10 million take about a minute on one core.
    """
    sites, num_sites = _sites(connection)
    recorded = [step for (step,) in connection.execute(f"SELECT DISTINCT step FROM {VIEW}").fetchall()]
    steps = sorted({*recorded, *findings})
    kinds = _kinds(connection, sorted(recorded))
    planes = len(kinds) + sum(kind.both for kind in kinds)
    cells = max(1, len(sites) * planes)
    is_rounded = cells * len(steps) > EXACT_CELLS
    axis = make_axis(steps, max(LEAST, ROUNDED_CELLS // cells) if is_rounded else len(steps), findings)
    connection.execute("CREATE TEMP TABLE page_steps (step BIGINT, col INTEGER)")
    connection.execute("INSERT INTO page_steps SELECT unnest(?), unnest(?)", [steps, axis.columns()])
    return Matrices(axis, sites, num_sites, kinds, _read(connection, kinds, len(sites), axis, is_rounded), is_rounded)


def _sites(connection: DuckDBPyConnection) -> tuple[tuple[SiteRow, ...], int]:
    """The rows in execution order; of too many those with the worst numbers."""
    connection.execute(f"""
        CREATE TEMP TABLE page_all AS SELECT layer, tensor, arg_max(cls, step) AS cls, arg_max(dtype, step) AS dtype,
            min(ord) FILTER (ord >= 0) AS place, min(step) AS first_step, max(numel) AS numel,
            greatest(count(DISTINCT rank), max(ranks)) AS ranks, sum(num_nan + num_pos_inf + num_neg_inf) AS bad, max(abs_max) AS amax
        FROM {VIEW} GROUP BY layer, tensor
    """)
    ((num_sites,),) = connection.execute("SELECT count(*) FROM page_all").fetchall()
    connection.execute(f"""
        CREATE TEMP TABLE page_sites AS SELECT *, row_number() OVER (ORDER BY place NULLS LAST, first_step, layer, tensor) - 1 AS site
        FROM (FROM page_all ORDER BY bad > 0 DESC, amax DESC NULLS LAST, layer, tensor LIMIT {MAX_SITES})
    """)
    rows = connection.execute("SELECT layer, cls, tensor, dtype, numel, ranks FROM page_sites ORDER BY site").fetchall()
    sites = (SiteRow(layer, cls, tensor, dtype, int(numel), int(ranks)) for layer, cls, tensor, dtype, numel, ranks in rows)
    return tuple(sites), int(num_sites)


def _kinds(connection: DuckDBPyConnection, steps: Sequence[int]) -> tuple[Kind, ...]:
    """The statistics of which the run has any number that tells something. Those that cost more than a count are tried at some steps."""
    columns = columns_of(connection, VIEW)
    known = [kind for kind in KINDS if kind.sql or kind.name in columns]
    counts = [kind for kind in known if kind.unit in ("%", "count")]
    tried = sorted({steps[i * (len(steps) - 1) // MAX_TRIED] for i in range(MAX_TRIED + 1)}) if steps else []
    there = {"amax", "num_nonfinite"}
    for kinds, where in (
        (counts, ""),
        ([kind for kind in known if kind not in counts], f"WHERE step IN ({', '.join(map(str, tried)) or 'NULL'})"),
    ):
        told = ", ".join(f"max({_sql(kind)}) <> 0 OR min({_sql(kind)}) <> 0" for kind in kinds)
        (row,) = connection.execute(f"SELECT {told} FROM {VIEW} {where}").fetchall()
        there |= {kind.name for kind, has in zip(kinds, row, strict=True) if has}
    return tuple(kind for kind in known if kind.name in there)[:MAX_STATISTICS]


def _sql(kind: Kind) -> str:
    return f"CAST({kind.sql or quoted(kind.name)} AS DOUBLE)"


def _read(
    connection: DuckDBPyConnection, kinds: Sequence[Kind], num_sites: int, axis: Axis, is_rounded: bool
) -> dict[tuple[str, str], Any]:
    import numpy as np

    wanted = [(kind, extreme) for kind in kinds for extreme in ("max", "min") if extreme == kind.worst or (kind.both and axis.is_binned)]
    cells = ", ".join(f"{extreme}({_sql(kind)}) AS c{i}" for i, (kind, extreme) in enumerate(wanted))
    found = connection.execute(
        f"SELECT site, col, {cells} FROM {VIEW} JOIN page_sites USING (layer, tensor) JOIN page_steps USING (step) GROUP BY site, col"
    ).fetchnumpy()
    values = {}
    for i, (kind, extreme) in enumerate(wanted):
        matrix = np.full((num_sites, len(axis)), np.nan, dtype=np.float32)
        cell = np.ma.filled(found[f"c{i}"], np.nan)
        matrix[np.asarray(found["site"]), np.asarray(found["col"])] = as_float32(cell)
        values[kind.name, extreme] = rounded(matrix) if is_rounded else matrix
    return values
