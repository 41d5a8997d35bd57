"""What a comparison says, gathered from its judged sites portion by portion."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from numscope.runs.difference import DivergenceOrigin, Drift, Measure, SiteDifference, StepCount
from numscope.runs.divergence import STATS
from numscope.runs.query import by_name

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ORDER = "ORDER BY step_a, place, ord NULLS LAST, layer_a, tensor"


class Verdicts:
    """Reads the tables ``judged`` and ``pairs_factors`` of each portion of steps, in their order, and keeps what the report shows.

    Args:
        con: where the tables are.
        stats: the statistics that were judged.
        top: how many modules and non-finite sites are kept.
    """

    def __init__(self, con: DuckDBPyConnection, stats: tuple[str, ...], top: int) -> None:
        self._con = con
        self._stats = stats
        self._top = top
        self.steps: list[StepCount] = []
        self.factors: list[tuple[int, float]] = []
        self.first: SiteDifference | None = None
        self.first_unequal: SiteDifference | None = None
        self.origin: DivergenceOrigin | None = None
        self.nonfinite: list[SiteDifference] = []
        self.num_nonfinite = 0

    def gather(self) -> None:
        """Add a portion."""
        self.steps += [StepCount(**row) for row in self._rows(_STEP_COUNTS)]
        self.factors += [(row["step_a"], row["factor"]) for row in self._rows("SELECT * FROM pairs_factors ORDER BY step_a")]
        self.num_nonfinite += self._rows("SELECT count(*) AS num FROM judged WHERE nonfinite_in <> ''")[0]["num"]
        if len(self.nonfinite) < self._top:
            self.nonfinite += self._differences("nonfinite_in <> ''", self._top - len(self.nonfinite))
        if self.first_unequal is None:
            self.first_unequal = next(iter(self._differences("NOT same", 1)), None)
        if self.first is not None:
            return
        self.first = next(iter(self._differences("severity > 1", 1)), None)
        at = "true"
        if self.first is not None:  # from the next step on all weights differ, and every module reads what the first one made
            self.origin = self._origin(self.first)
            at = f"step_a = {self.first.step_a}"
            self._con.execute("DROP TABLE IF EXISTS drifts")
        drifts = _DRIFTS.format(at=at)
        self._con.execute(f"CREATE TEMP TABLE IF NOT EXISTS drifts AS SELECT * FROM ({drifts}) LIMIT 0")
        self._con.execute(f"INSERT INTO drifts {drifts}")

    def modules(self) -> tuple[Drift, ...]:
        """By drift, at the step of the first divergence; without one, each module at the step where it adds most."""
        most = f"SELECT DISTINCT ON (layer_a) * FROM drifts {_MOST}"
        rows = self._rows(f"SELECT * FROM ({most}) ORDER BY bits DESC, step_a, layer_a LIMIT {self._top}")
        return tuple(Drift(**row) for row in rows)

    def _rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        return by_name(self._con.execute(sql, list(values)))

    def _differences(self, where: str, limit: int) -> list[SiteDifference]:
        found = []
        for row in self._rows(
            f"SELECT * REPLACE (numel_a::BIGINT AS numel_a, numel_b::BIGINT AS numel_b) FROM judged WHERE {where} {ORDER} LIMIT {limit}"
        ):
            measures = tuple(Measure(s, row[f"a_{s}"], row[f"b_{s}"], row[f"d_{s}"], row[f"t_{s}"]) for s in STATS)
            judged = [m for m in measures if m.statistic in self._stats]
            one_sided = [m for m in judged if m.statistic in ("num_nan", "num_inf") and m.divergence == 1.0] if row["nonfinite_in"] else []
            worst = max(one_sided or judged, key=lambda m: (m.divergence or 0.0) / m.tolerance)
            stored = {field.name: row[field.name] for field in fields(SiteDifference) if field.name in row}
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
