"""Statistics of a run as matrices, sites by columns of steps, each cell the extreme over its steps and ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from numscope.page.axis import Axis, make_axis
from numscope.page.columns import as_float32, rounded
from numscope.page.grid import Fold, Grid, Plane
from numscope.records.words import spans
from numscope.runs.query import LOSS, RATES, RAW, VIEW, column_of, columns_of, make_table, quoted
from numscope.summary.statistics import STATISTICS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_RATES = 6  # that a page shows; of 64 groups at most
MAX_SITES = 5000
EXACT_CELLS = 1_000_000  # in all matrices together; up to so many are kept exactly
ROUNDED_CELLS = 1_800_000  # otherwise so many, rounded: about 4 MB in a page
MAX_STATISTICS = 14
EXTREMES: tuple[Fold, ...] = ("max", "min")
FEWEST_PLANES = 3  # matrices of a run: what is gathered has as many columns as these could have

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
    # the largest and the smallest of each column, nan where it was not finite or is not known; None if the run has none
    loss: tuple[Any, Any] | None = None
    rates: Mapping[str, Any] = field(default_factory=dict)  # the largest learning rate of each column, by the groups that have it


@dataclass(frozen=True, slots=True)
class _Site:
    """Facts about a site; class and dtype are the latest ones."""

    cls: str
    dtype: str
    place: int | None
    first_step: int
    last_step: int
    numel: int
    ranks: int
    is_bad: bool
    amax: float | None

    def joined(self, other: _Site) -> _Site:
        """With what was known before."""
        latest = self if self.last_step >= other.last_step else other
        return _Site(
            latest.cls,
            latest.dtype,
            min((x for x in (self.place, other.place) if x is not None), default=None),
            min(self.first_step, other.first_step),
            latest.last_step,
            max(self.numel, other.numel),
            max(self.ranks, other.ranks),
            self.is_bad or other.is_bad,
            max((x for x in (self.amax, other.amax) if x is not None), default=None),
        )


@dataclass(frozen=True, slots=True)
class Cells:
    """All sites' numbers as they are gathered from a run's parts, in columns that are at least as fine as a page's."""

    _sites: dict[tuple[str, str], _Site] = field(default_factory=dict)  # by (layer, tensor)
    _grid: Grid = field(default_factory=Grid)  # by the same, in the same order
    _loss: Grid = field(default_factory=Grid)
    _rates: Grid = field(default_factory=Grid)  # by the number of an optimizer's group

    def with_rows(self, connection: DuckDBPyConnection, findings: Sequence[int]) -> Cells:
        """These cells with a connection's rows added.

        Args:
            connection: from ``runs.query.connect``. The table ``page_sites`` (layer, tensor, site) is left there.
            findings: steps with findings: around them each step has its own column.

        Raises: Misfit.
        *Cost:* one pass over the rows in DuckDB: 10 million take some seconds.
        """
        sites = _read_sites(connection)
        recorded = column_of(connection, f"SELECT DISTINCT step FROM {VIEW}")
        grown = self.refit(findings, sites, recorded)
        grid, loss = grown._grid, grown._loss
        rows = ((layer, tensor, grid.rows[layer, tensor]) for layer, tensor in sites)
        make_table(connection, "page_sites", {"layer": "VARCHAR", "tensor": "VARCHAR", "site": "BIGINT"}, rows)
        grid.axis.make_table(connection, "page_steps", recorded)
        for plane, numbers in _read_cells(connection).items():
            grid.put(plane, *numbers)
        for plane, numbers in _read_loss(connection).items():
            loss.put(plane, *numbers)
        groups, columns, values = _read_rates(connection)
        rates = grown._rates.grown(range(int(max(groups, default=-1)) + 1), recorded, lambda *_: grid.axis)
        rates.put((RATES, "max"), groups, columns, values)
        joined = {key: site.joined(self._sites[key]) if key in self._sites else site for key, site in sites.items()}
        return Cells({**self._sites, **joined}, grid, loss, rates)

    def refit(self, findings: Sequence[int], keys: Iterable[tuple[str, str]] = (), steps: Sequence[int] = ()) -> Cells:
        """These cells in the columns that other findings, and further sites and steps, need. Raises: Misfit."""

        def fine(steps: list[int], num_sites: int) -> Axis:
            cells = max(1, min(num_sites, MAX_SITES)) * FEWEST_PLANES
            return make_axis(sorted({*steps, *findings}), ROUNDED_CELLS // cells, findings, more_near=True)

        grid = self._grid.grown(keys, steps, fine)
        loss, rates = (one.grown(known, steps, lambda *_: grid.axis) for one, known in ((self._loss, [LOSS]), (self._rates, [])))
        return Cells(self._sites, grid, loss, rates)

    def shown(self) -> list[int]:
        """The sites of a page in execution order; of too many those with the worst numbers."""
        every = [(key, self._grid.rows[key], site) for key, site in self._sites.items()]
        if len(every) > MAX_SITES:
            every = sorted(every, key=lambda one: (not one[2].is_bad, one[2].amax is None, -(one[2].amax or 0.0), one[0]))[:MAX_SITES]
        every.sort(key=lambda one: (one[2].place is None, one[2].place or 0, one[2].first_step, one[0]))
        return [row for _, row, _ in every]

    def matrices(self, findings: Sequence[int], shown: Sequence[int], ranks: Sequence[int]) -> Matrices:
        """The matrices of a page.

        Args:
            findings: as in the latest call of ``with_rows`` or ``refit``.
            shown: see there.
            ranks: how many wrote each of those sites.
        """
        keys, rows, grid = list(self._sites), np.asarray(shown, dtype=np.int64), self._grid
        told = {plane: grid.cells(plane)[rows] for plane in grid.planes}
        there = {name for (name, _), cells in told.items() if name in ("amax", "num_nonfinite") or bool((np.nan_to_num(cells) != 0).any())}
        kinds = tuple(kind for kind in KINDS if kind.name in there)[:MAX_STATISTICS]
        cells = max(1, len(rows) * (len(kinds) + sum(kind.both for kind in kinds)))
        steps = sorted({*grid.steps, *findings})
        is_rounded = cells * len(steps) > EXACT_CELLS
        axis = make_axis(steps, ROUNDED_CELLS // cells if is_rounded else len(steps), findings)
        values: dict[tuple[str, str], Any] = {}
        for kind in kinds:
            for extreme in EXTREMES:
                if extreme == kind.worst or (kind.both and axis.is_binned):
                    matrix = grid.on(axis, (kind.name, extreme))[rows]
                    values[kind.name, extreme] = rounded(matrix) if is_rounded else matrix
        sites = []
        for i, num in zip(shown, ranks, strict=True):
            (layer, tensor), site = keys[i], self._sites[keys[i]]
            sites.append(SiteRow(layer, site.cls, tensor, site.dtype, site.numel, max(num, site.ranks)))
        loss = {plane[1]: self._loss.on(axis, plane)[0] for plane in self._loss.planes}
        both = (loss["max"], loss["min"]) if loss else None
        return Matrices(axis, tuple(sites), len(keys), kinds, values, is_rounded, both, self._shown_rates(axis))

    def _shown_rates(self, axis: Axis) -> dict[str, Any]:
        """Groups whose learning rates are the same share a line."""
        alike: dict[bytes, tuple[list[int], Any]] = {}
        for plane in self._rates.planes:
            for group, cells in enumerate(self._rates.on(axis, plane)):
                if not np.isnan(cells).all():
                    alike.setdefault(cells.tobytes(), ([], cells))[0].append(group)
        told = [", ".join(f"{a}–{b}" if b > a else str(a) for a, b in spans(groups)) for groups, _ in alike.values()]
        return dict(zip(told[:MAX_RATES], (cells for _, cells in alike.values()), strict=False))


def _read_sites(connection: DuckDBPyConnection) -> dict[tuple[str, str], _Site]:
    rows = connection.execute(f"""
        SELECT layer, tensor, arg_max(cls, step), arg_max(dtype, step), min(ord) FILTER (ord >= 0), min(step), max(step), max(numel),
            max(ranks), coalesce(max(num_nan + num_pos_inf + num_neg_inf) > 0, false), max(abs_max)
        FROM {VIEW} GROUP BY layer, tensor ORDER BY layer, tensor
    """).fetchall()
    return {
        (layer, tensor): _Site(cls, dtype, place, first, last, int(numel or 0), int(ranks), bool(bad), amax)
        for layer, tensor, cls, dtype, place, first, last, numel, ranks, bad, amax in rows
    }


def _sql(kind: ShownStatistic) -> str:
    return f"CAST({kind.sql or quoted(kind.name)} AS DOUBLE)"


def _read_cells(connection: DuckDBPyConnection) -> dict[Plane, tuple[Any, Any, Any]]:
    """By statistic and extreme: sites, columns and numbers."""
    there = columns_of(connection, VIEW)
    known = [kind for kind in KINDS if kind.sql or kind.name in there]
    wanted = [(kind, extreme) for kind in known for extreme in EXTREMES if extreme == kind.worst or kind.both or kind.worst == "min"]
    values = ", ".join(f"CASE WHEN NOT isnan({_sql(kind)}) THEN {_sql(kind)} END AS v{i}" for i, kind in enumerate(known))
    cells = ", ".join(f"{extreme}(v{known.index(kind)}) AS c{i}" for i, (kind, extreme) in enumerate(wanted))
    found = connection.execute(f"""
        SELECT site, col, {cells} FROM (
            SELECT site, col, {values} FROM {VIEW} JOIN page_sites USING (layer, tensor) JOIN page_steps USING (step)
        ) GROUP BY site, col
    """).fetchnumpy()
    rows, columns = np.asarray(found["site"]), np.asarray(found["col"])
    return {
        (kind.name, extreme): (rows, columns, as_float32(np.ma.filled(found[f"c{i}"], np.nan))) for i, (kind, extreme) in enumerate(wanted)
    }


def _read_loss(connection: DuckDBPyConnection) -> dict[Plane, tuple[Any, Any, Any]]:
    found = connection.execute(
        f'SELECT col, max("max") AS "max", min("min") AS "min" FROM {VIEW} JOIN page_steps USING (step) '
        "WHERE tensor = ? AND numel = 1 GROUP BY col",
        [LOSS],
    ).fetchnumpy()
    columns = np.asarray(found["col"])
    if not len(columns):
        return {}
    return {(LOSS, fold): (np.zeros_like(columns), columns, as_float32(np.ma.filled(found[fold], np.nan))) for fold in EXTREMES}


def _read_rates(connection: DuckDBPyConnection) -> tuple[Any, Any, Any]:
    """Groups, columns and learning rates."""
    if columns_of(connection).get(RATES) != "DOUBLE[]":
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
    found = connection.execute(
        f"SELECT place - 1 AS place, col, max(rate) AS rate FROM (SELECT col, unnest({RATES}[:64]) AS rate, "
        f"generate_subscripts({RATES}[:64], 1) AS place FROM {RAW} JOIN page_steps USING (step) WHERE tensor = ? AND numel = 1) "
        "WHERE isfinite(rate) GROUP BY place, col",
        [LOSS],
    ).fetchnumpy()
    return np.asarray(found["place"]), np.asarray(found["col"]), as_float32(np.ma.filled(found["rate"], np.nan))
