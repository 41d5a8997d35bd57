"""Statistics of a run as matrices, sites by columns of steps, each cell the extreme over its steps and ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numscope.page.axis import Axis, make_axis
from numscope.page.columns import as_float32, rounded
from numscope.page.folded import Folded, held
from numscope.page.rows import LOSS
from numscope.runs.query import VIEW, columns_of, quoted
from numscope.summary.statistics import STATISTICS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_SITES = 5000
EXACT_CELLS = 1_000_000  # of all matrices together: so many are kept as they are
ROUNDED_CELLS = 1_800_000  # otherwise so many, rounded: about 4 MB in a page
MAX_STATISTICS = 14
FEWEST_PLANES = 3  # matrices of a run: what is gathered has as many columns as these could have

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
        loss: the largest and the smallest of each column, nan where it was not finite or is not known; None if the run has none.
    """

    axis: Axis
    sites: tuple[SiteRow, ...]
    num_sites: int
    kinds: tuple[Kind, ...]
    values: dict[tuple[str, str], Any]
    is_rounded: bool
    loss: tuple[Any, Any] | None = None


@dataclass(slots=True)
class _Site:
    """What is known of a site: of its class and dtype the latest."""

    cls: str
    dtype: str
    place: int | None
    first_step: int
    last_step: int
    numel: int
    ranks: int
    is_bad: bool
    amax: float | None

    def join(self, other: _Site) -> None:
        if other.last_step >= self.last_step:
            self.cls, self.dtype, self.last_step = other.cls, other.dtype, other.last_step
        self.place = min((x for x in (self.place, other.place) if x is not None), default=None)
        self.first_step = min(self.first_step, other.first_step)
        self.numel, self.ranks = max(self.numel, other.numel), max(self.ranks, other.ranks)
        self.is_bad = self.is_bad or other.is_bad
        self.amax = max((x for x in (self.amax, other.amax) if x is not None), default=None)


@dataclass(slots=True)
class Cells:
    """All sites' numbers as they are gathered from a run's parts, in columns that are at least as fine as a page's.

    Attributes:
        ids: a number for each (layer, tensor), in the order in which they were met.
        steps: recorded ones.
    """

    ids: dict[tuple[str, str], int] = field(default_factory=dict)
    steps: set[int] = field(default_factory=set)
    _sites: list[_Site] = field(default_factory=list)
    _axis: Axis = field(default_factory=lambda: Axis((), (), ()))
    _planes: dict[tuple[str, str], Folded] = field(default_factory=dict)
    _loss: dict[tuple[str, str], Folded] = field(default_factory=dict)

    def read(self, connection: DuckDBPyConnection, findings: Sequence[int]) -> Callable[[], None]:
        """What a connection's rows add: a function that takes it in.

        Args:
            connection: from ``runs.query.connect``. The table ``page_sites`` (layer, tensor, site) is left there.
            findings: steps with findings: around them each step has its own column.

        Raises: Misfit.
        *Cost:* one pass over the rows in DuckDB: 10 million take some seconds.
        """
        sites = _read_sites(connection)
        ids = {key: len(self.ids) + i for i, key in enumerate(key for key in sites if key not in self.ids)}
        every = {key: self.ids.get(key, ids.get(key, -1)) for key in sites}
        connection.execute("CREATE TEMP TABLE page_sites (layer VARCHAR, tensor VARCHAR, site BIGINT)")
        columns = [[layer for layer, _ in every], [tensor for _, tensor in every], list(every.values())]
        connection.execute("INSERT INTO page_sites SELECT unnest(?), unnest(?), unnest(?)", columns)
        recorded = [step for (step,) in connection.execute(f"SELECT DISTINCT step FROM {VIEW}").fetchall()]
        axis = _fine_axis({*self.steps, *recorded}, findings, len(self.ids) + len(ids))
        holding = held(axis, self._axis)
        connection.execute("CREATE TEMP TABLE page_steps (step BIGINT, col INTEGER)")
        connection.execute("INSERT INTO page_steps SELECT unnest(?), unnest(?)", [recorded, axis.columns(recorded)])
        cells, loss = _read_cells(connection), _read_loss(connection)

        def take() -> None:
            self.ids.update(ids)
            self._sites += [sites[key] for key in ids]
            for key, site in sites.items():
                if key not in ids:
                    self._sites[self.ids[key]].join(site)
            self.steps.update(recorded)
            self._fit(axis, holding)
            for planes, new, num_rows in ((self._planes, cells, len(self.ids)), (self._loss, loss, 1)):
                for name, numbers in new.items():
                    if name not in planes:
                        planes[name] = Folded("max" if name[1] == "max" else "min")
                        planes[name].fit((), num_rows, len(axis))
                    planes[name].put(*numbers)

        return take

    def refit(self, findings: Sequence[int]) -> None:
        """Go over to the columns that other findings need. Raises: Misfit."""
        axis = _fine_axis(self.steps, findings, len(self.ids))
        self._fit(axis, held(axis, self._axis))

    def _fit(self, axis: Axis, holding: Any) -> None:
        for planes, num_rows in ((self._planes, len(self.ids)), (self._loss, 1)):
            for plane in planes.values():
                if axis != self._axis or len(plane.cells) != num_rows:
                    plane.fit(holding, num_rows, len(axis))
        self._axis = axis

    def shown(self) -> list[int]:
        """The sites of a page in execution order; of too many those with the worst numbers."""
        keys = list(self.ids)

        def badness(i: int) -> tuple[Any, ...]:
            site = self._sites[i]
            return not site.is_bad, site.amax is None, -(site.amax or 0.0), keys[i]

        def order(i: int) -> tuple[Any, ...]:
            site = self._sites[i]
            return site.place is None, site.place or 0, site.first_step, keys[i]

        every = range(len(keys))
        return sorted(every if len(every) <= MAX_SITES else sorted(every, key=badness)[:MAX_SITES], key=order)

    def matrices(self, findings: Sequence[int], shown: Sequence[int], ranks: Sequence[int]) -> Matrices:
        """A page's.

        Args:
            findings: as in the latest call of ``read`` or ``refit``.
            shown: see there.
            ranks: how many wrote each of those sites.
        """
        import numpy as np

        keys, rows = list(self.ids), np.asarray(shown, dtype=np.int64)
        told = {name: plane.cells[rows] for name, plane in self._planes.items()}
        there = {name for (name, _), cells in told.items() if name in ("amax", "num_nonfinite") or bool((np.nan_to_num(cells) != 0).any())}
        kinds = tuple(kind for kind in KINDS if kind.name in there)[:MAX_STATISTICS]
        cells = max(1, len(rows) * (len(kinds) + sum(kind.both for kind in kinds)))
        steps = sorted({*self.steps, *findings})
        is_rounded = cells * len(steps) > EXACT_CELLS
        axis = make_axis(steps, ROUNDED_CELLS // cells if is_rounded else len(steps), findings)
        holding = held(axis, self._axis)
        values = {}
        for kind in kinds:
            for extreme in ("max", "min"):
                if extreme == kind.worst or (kind.both and axis.is_binned):
                    matrix = self._planes[kind.name, extreme].fitted(holding, len(self.ids), len(axis))[rows]
                    values[kind.name, extreme] = rounded(matrix) if is_rounded else matrix
        sites = [
            SiteRow(*keys[i][:1], site.cls, keys[i][1], site.dtype, site.numel, max(num, site.ranks))
            for i, num in zip(shown, ranks, strict=True)
            for site in (self._sites[i],)
        ]
        loss = {name[1]: plane.fitted(holding, 1, len(axis))[0] for name, plane in self._loss.items()}
        return Matrices(axis, tuple(sites), len(keys), kinds, values, is_rounded, (loss["max"], loss["min"]) if loss else None)


def _fine_axis(steps: set[int], findings: Sequence[int], num_sites: int) -> Axis:
    cells = max(1, min(num_sites, MAX_SITES)) * FEWEST_PLANES
    return make_axis(sorted({*steps, *findings}), ROUNDED_CELLS // cells, findings, more_near=True)


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


def _sql(kind: Kind) -> str:
    return f"CAST({kind.sql or quoted(kind.name)} AS DOUBLE)"


def _read_cells(connection: DuckDBPyConnection) -> dict[tuple[str, str], tuple[Any, Any, Any]]:
    """By statistic and extreme: sites, columns and numbers."""
    import numpy as np

    there = columns_of(connection, VIEW)
    known = [kind for kind in KINDS if kind.sql or kind.name in there]
    wanted = [(kind, extreme) for kind in known for extreme in ("max", "min") if extreme == kind.worst or kind.both or kind.worst == "min"]
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


def _read_loss(connection: DuckDBPyConnection) -> dict[tuple[str, str], tuple[Any, Any, Any]]:
    import numpy as np

    found = connection.execute(
        f'SELECT col, max("max") AS most, min("min") AS least FROM {VIEW} JOIN page_steps USING (step) '
        "WHERE tensor = ? AND numel = 1 GROUP BY col",
        [LOSS],
    ).fetchnumpy()
    columns = np.asarray(found["col"])
    if not len(columns):
        return {}
    pairs = (("max", "most"), ("min", "least"))
    return {(LOSS, fold): (np.zeros_like(columns), columns, as_float32(np.ma.filled(found[name], np.nan))) for fold, name in pairs}
