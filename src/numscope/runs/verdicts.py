"""The result of comparing two runs as plain data, gathered from the judged sites portion by portion."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from numscope.records.finding import plain
from numscope.runs.align import LayerPair
from numscope.runs.divergence import STATS
from numscope.runs.query import by_name

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Grows by one when a reader of the version before would misread the document; a key that is added is no such change.
SCHEMA_VERSION = 1
ORDER = "ORDER BY step_a, place, ord NULLS LAST, layer_a, tensor"

Calibration = Literal["dtype", "tolerance", "noise", "earlier steps", "steps"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One statistic on both sides; ``divergence`` and ``tolerance`` as ``runs/divergence.py`` defines them, None where it has none."""

    statistic: str
    a: float | None
    b: float | None
    divergence: float | None
    tolerance: float


@dataclass(frozen=True, slots=True)
class SiteDifference:
    """One site of both runs at one step."""

    step_a: int
    step_b: int
    layer_a: str
    layer_b: str
    cls: str
    tensor: str
    dtype_a: str
    dtype_b: str
    numel_a: int
    numel_b: int
    severity: float  # the largest divergence over its tolerance; above 1 the site diverges
    worst: str  # the statistic that has it
    nonfinite_in: str  # ``a`` or ``b`` where only that run has nan or inf; else ""
    factor: float | None  # what the loss's scale had multiplied B's gradient by, already taken out; None: nothing
    measures: tuple[Measure, ...]  # each statistic


@dataclass(frozen=True, slots=True)
class DivergenceOrigin:
    """How the first divergence came: severities of what its layer read, None where it was not observed."""

    # ``module``: what it read agrees, so its own computation differs; ``weight``: its weight differs already; ``input``: what it read
    # differs already, so the cause lies between ``after`` and it; ``unknown``: what it read was not observed
    verdict: Literal["module", "weight", "input", "unknown"]
    inputs: dict[str, float]  # by tensor
    after: str | None  # the last site before it, in order of execution, that agrees; None: there is none
    # layers whose weights differ at this step, the first ones: a weight is read at the step's end and used from its start
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """By how much a module adds to what had diverged before it, at the step of the first divergence, else where it adds most."""

    layer_a: str
    layer_b: str
    cls: str
    direction: Literal["forward", "backward"]  # ``forward`` (activation to output) or ``backward`` (gradient to dgrad and wgrad)
    step_a: int
    step_b: int
    bits: float  # log2 of (1 + severity of what it made) / (1 + severity of what it read): 0 for one that passes on what it gets
    read: float  # a severity
    weight: float | None  # likewise; None where it was not observed
    made: float  # likewise


@dataclass(frozen=True, slots=True)
class StepCount:
    """How many sites of a step diverge."""

    step_a: int
    step_b: int
    num_sites: int
    num_diverging: int
    severity: float


@dataclass(frozen=True, slots=True)
class Diff:
    """The result of comparing two runs."""

    a: str  # as given
    b: str  # as given
    dtypes: tuple[str, str]  # the coarsest dtype that a quarter of each run's activations have at least
    calibration: Calibration  # where the tolerances come from
    noise: tuple[str, ...]  # the runs that calibrated, as they were given
    tolerances: dict[str, float]  # by statistic; with noise, the least tolerance
    stats: tuple[str, ...]  # statistics that were judged
    pairs: tuple[LayerPair, ...]  # layers under both names
    only_a: tuple[str, ...]  # sites of one run alone
    only_b: tuple[str, ...]  # sites of one run alone
    steps_only_a: tuple[int, ...]  # steps of one run alone
    steps_only_b: tuple[int, ...]  # steps of one run alone
    steps: tuple[StepCount, ...]  # each compared step
    # ``(step of A, factor)`` where the gradients of B's step carry another scale of the loss throughout
    factors: tuple[tuple[int, float], ...]
    first_unequal: SiteDifference | None  # the first site whose stored numbers are not bit for bit the same; None: all are
    nonfinite: tuple[SiteDifference, ...]  # sites of which one run alone has nan or inf, in order, the first ones
    num_nonfinite: int  # how many there are
    first: SiteDifference | None  # the first site that diverges; None: none does
    likeness: str  # how the two tensors of ``first`` differ, by their sketches; "" without these
    origin: DivergenceOrigin | None  # where ``first`` came from
    modules: tuple[Drift, ...]  # by drift, the largest first

    @property
    def diverged(self) -> bool:
        """Whether any site is above its tolerance."""
        return self.first is not None

    def document(self) -> dict[str, Any]:
        """All of it as JSON-ready dicts; ``docs/diff.md`` describes the keys."""
        return {"schema_version": SCHEMA_VERSION, "diverged": self.diverged, **plain(self)}


@dataclass(slots=True)
class Verdicts:
    """Reads the tables ``judged`` and ``pairs_factors`` of each portion of steps, in their order, and keeps what the report shows."""

    con: DuckDBPyConnection  # where the tables are
    stats: tuple[str, ...]  # the judged statistics
    top: int  # how many modules and non-finite sites are kept
    steps: list[StepCount] = field(default_factory=list)
    factors: list[tuple[int, float]] = field(default_factory=list)
    first: SiteDifference | None = None
    first_unequal: SiteDifference | None = None
    origin: DivergenceOrigin | None = None
    nonfinite: list[SiteDifference] = field(default_factory=list)
    num_nonfinite: int = 0

    def gather(self) -> None:
        """Add a portion."""
        self.steps += [StepCount(**row) for row in self._rows(_STEP_COUNTS)]
        self.factors += [(row["step_a"], row["factor"]) for row in self._rows("SELECT * FROM pairs_factors ORDER BY step_a")]
        self.num_nonfinite += self._rows("SELECT count(*) AS num FROM judged WHERE nonfinite_in <> ''")[0]["num"]
        if len(self.nonfinite) < self.top:
            self.nonfinite += self._differences("nonfinite_in <> ''", self.top - len(self.nonfinite))
        if self.first_unequal is None:
            self.first_unequal = next(iter(self._differences("NOT same", 1)), None)
        if self.first is not None:
            return
        self.first = next(iter(self._differences("severity > 1", 1)), None)
        at = "true"
        if self.first is not None:  # from the next step on all weights differ, and every module reads what the first one made
            self.origin = self._origin(self.first)
            at = f"step_a = {self.first.step_a}"
            self.con.execute("DROP TABLE IF EXISTS drifts")
        drifts = _DRIFTS.format(at=at)
        self.con.execute(f"CREATE TEMP TABLE IF NOT EXISTS drifts AS SELECT * FROM ({drifts}) LIMIT 0")
        self.con.execute(f"INSERT INTO drifts {drifts}")

    def modules(self) -> tuple[Drift, ...]:
        """By drift, at the step of the first divergence; without one, each module at the step where it adds most."""
        most = f"SELECT DISTINCT ON (layer_a) * FROM drifts {_MOST}"
        rows = self._rows(f"SELECT * FROM ({most}) ORDER BY bits DESC, step_a, layer_a LIMIT {self.top}")
        return tuple(Drift(**row) for row in rows)

    def _rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        return by_name(self.con, sql, *values)

    def _differences(self, where: str, limit: int) -> list[SiteDifference]:
        found = []
        for row in self._rows(
            f"SELECT * REPLACE (numel_a::BIGINT AS numel_a, numel_b::BIGINT AS numel_b) FROM judged WHERE {where} {ORDER} LIMIT {limit}"
        ):
            measures = tuple(Measure(s, row[f"a_{s}"], row[f"b_{s}"], row[f"d_{s}"], row[f"t_{s}"]) for s in STATS)
            judged = [m for m in measures if m.statistic in self.stats]
            one_sided = [m for m in judged if m.statistic in ("num_nan", "num_inf") and m.divergence == 1.0] if row["nonfinite_in"] else []
            worst = max(one_sided or judged, key=lambda m: (m.divergence or 0.0) / m.tolerance)
            stored = {one.name: row[one.name] for one in fields(SiteDifference) if one.name in row}
            found.append(SiteDifference(**stored, worst=worst.statistic, measures=measures))
        return found

    def _origin(self, first: SiteDifference) -> DivergenceOrigin:
        """Judges by the other sites of the first divergence's step."""
        sites = self._rows(f"SELECT layer_a AS layer, tensor, severity FROM judged WHERE step_a = ? {ORDER}", first.step_a)
        own = {site["tensor"]: site["severity"] for site in sites if site["layer"] == first.layer_a}
        kind = _kind(first.tensor)
        reads = {"output": ("activation",), "dgrad": ("gradient",), "wgrad": ("gradient", "activation")}.get(kind, ())
        read = {tensor: own[tensor] for tensor in reads if tensor in own}
        weights = {tensor: severity for tensor, severity in own.items() if _kind(tensor) == "weight" and kind in ("output", "dgrad")}
        names = [f"{site['layer']} {site['tensor']}" for site in sites]
        place = names.index(f"{first.layer_a} {first.tensor}")
        differing = dict.fromkeys(site["layer"] for site in sites if _kind(site["tensor"]) == "weight" and site["severity"] > 1)
        verdict: Literal["module", "weight", "input", "unknown"]
        if not reads:
            verdict = "weight" if kind == "weight" else "input"
        elif any(severity > 1 for severity in read.values()):
            verdict = "input"
        elif any(severity > 1 for severity in weights.values()):
            verdict = "weight"
        else:
            verdict = "module" if len(read) == len(reads) else "unknown"
        return DivergenceOrigin(verdict, {**read, **weights}, names[place - 1] if place else None, tuple(differing)[:3])


def _kind(tensor: str) -> str:
    """``weight`` of ``weight[in_proj_weight]``."""
    return tensor.partition("[")[0]


_STEP_COUNTS = """
    SELECT step_a, step_b, count(*) AS num_sites, count(*) FILTER (severity > 1) AS num_diverging, max(severity) AS severity
    FROM judged GROUP BY step_a, step_b ORDER BY step_a
"""
_MOST = "ORDER BY layer_a, bits DESC, step_a, direction DESC"
_DRIFTS = f"""
    WITH sides AS (
        SELECT layer_a, layer_b, cls, step_a, step_b,
            max(severity) FILTER (tensor = 'activation') AS activation,
            max(severity) FILTER (tensor = 'output') AS output,
            max(severity) FILTER (tensor = 'gradient') AS gradient,
            max(severity) FILTER (tensor LIKE 'weight%') AS weight,
            max(severity) FILTER (tensor = 'dgrad' OR tensor LIKE 'wgrad%') AS sent
        FROM judged WHERE {{at}} GROUP BY ALL
    ), ways AS (
        SELECT layer_a, layer_b, cls, 'forward' AS direction, step_a, step_b, activation AS read, weight, output AS made FROM sides
        UNION ALL
        SELECT layer_a, layer_b, cls, 'backward', step_a, step_b, greatest(gradient, activation), weight, sent FROM sides
        WHERE gradient IS NOT NULL
    ), grown AS (
        SELECT layer_a, layer_b, cls, direction, step_a, step_b, log2((1 + made) / (1 + read)) AS bits, read, weight, made
        FROM ways WHERE made > read
    ) SELECT DISTINCT ON (layer_a) * FROM grown {_MOST}
"""
