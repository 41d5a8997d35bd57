"""Largest magnitudes rank by rank, so that the odd one out can be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numscope.page.axis import Axis, stretches
from numscope.page.columns import as_float32
from numscope.page.folded import Folded, held
from numscope.runs.query import RAW

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_RANKS = 512
MAX_CELLS = 500_000
MAX_STRETCHES = 96


@dataclass(frozen=True, slots=True)
class Ranks:
    """Amax of the sites that several ranks wrote.

    Args:
        ranks: their numbers.
        sites: rows of the matrices.
        first, last: steps of each stretch.
        amax: float32 array, sites × ranks × stretches: the largest of the stretch's steps; inf where some element was not finite, nan where
            there is nothing.
    """

    ranks: tuple[int, ...]
    sites: tuple[int, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]
    amax: Any


@dataclass(slots=True)
class RankCells:
    """Each site's amax on each rank as it is gathered from a run's parts, where several ranks wrote."""

    _rows: dict[tuple[int, int], int] = field(default_factory=dict)  # by site and rank
    _steps: set[int] = field(default_factory=set)
    _axis: Axis = field(default_factory=lambda: Axis((), (), ()))
    _amax: Folded = field(default_factory=lambda: Folded("max"))

    def read(self, connection: DuckDBPyConnection) -> Callable[[], None]:
        """What a connection's rows add: a function that takes it in. The table ``page_sites`` is there. Raises: Misfit."""
        import numpy as np

        rows = f"{RAW} JOIN page_sites USING (layer, tensor)"
        pairs = connection.execute(f"SELECT DISTINCT site, rank FROM {rows} ORDER BY ALL").fetchall()
        recorded = [step for (step,) in connection.execute(f"SELECT DISTINCT step FROM {RAW}").fetchall()]
        new = {pair: len(self._rows) + i for i, pair in enumerate(pair for pair in pairs if pair not in self._rows)}
        num_rows = len(self._rows) + len(new)
        axis = stretches(sorted({*self._steps, *recorded}), min(MAX_STRETCHES, MAX_CELLS // max(1, num_rows)))
        holding = held(axis, self._axis)
        connection.execute("CREATE TEMP TABLE page_rank_steps (step BIGINT, stretch INTEGER)")
        connection.execute("INSERT INTO page_rank_steps SELECT unnest(?), unnest(?)", [recorded, axis.columns(recorded)])
        found = connection.execute(f"""
            SELECT site, rank, stretch, max(abs_max) AS amax, max(num_nan + num_pos_inf + num_neg_inf) > 0 AS bad
            FROM {rows} JOIN page_rank_steps USING (step) GROUP BY ALL
        """).fetchnumpy()
        bad = np.ma.filled(found["bad"], False).astype(bool)
        amax = np.where(bad, np.float32(np.inf), as_float32(np.ma.filled(found["amax"], np.nan)))

        def take() -> None:
            self._rows.update(new)
            self._steps.update(recorded)
            self._axis = axis
            self._amax.fit(holding, num_rows, len(axis))
            places = [self._rows[pair] for pair in zip(found["site"].tolist(), found["rank"].tolist(), strict=True)]
            self._amax.put(np.asarray(places, dtype=np.int64), np.asarray(found["stretch"]), amax)

        return take

    def num_ranks(self, shown: Sequence[int]) -> list[int]:
        """How many ranks wrote each site."""
        of = Counter(site for site, _ in self._rows)
        return [of[site] for site in shown]

    def ranks(self, shown: Sequence[int]) -> Ranks | None:
        """Those of a page's sites; None if none was written by several."""
        import numpy as np

        rows = [row for row, num in enumerate(self.num_ranks(shown)) if num > 1]
        if not rows:
            return None
        ranks = sorted({rank for _, rank in self._rows})[:MAX_RANKS]
        rows = rows[: MAX_CELLS // len(ranks)]
        amax = np.full((len(rows), len(ranks), len(self._axis)), np.nan, dtype=np.float32)
        for i, row in enumerate(rows):
            for j, rank in enumerate(ranks):
                place = self._rows.get((shown[row], rank))
                if place is not None:
                    amax[i, j] = self._amax.cells[place]
        return Ranks(tuple(ranks), tuple(rows), self._axis.first, self._axis.last, amax)
