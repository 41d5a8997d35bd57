"""Largest magnitudes rank by rank, so that the odd one out can be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from numscope.page.axis import stretches
from numscope.page.columns import as_float32
from numscope.page.grid import Grid, Plane
from numscope.runs.query import RAW, column_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_RANKS = 512
MAX_CELLS = 500_000
MAX_STRETCHES = 96

_AMAX: Plane = ("amax", "max")


@dataclass(frozen=True, slots=True)
class RankAmax:
    """Amax of the sites that several ranks wrote."""

    ranks: tuple[int, ...]  # their numbers
    sites: tuple[int, ...]  # rows of the matrices
    first: tuple[int, ...]  # steps of each stretch
    last: tuple[int, ...]  # steps of each stretch
    # float32 array, sites × ranks × stretches: the largest of the stretch's steps; inf where some element was not finite, nan where there
    # is nothing
    amax: Any


@dataclass(frozen=True, slots=True)
class RankCells:
    """Each site's amax on each rank as it is gathered from a run's parts, where several ranks wrote."""

    _grid: Grid = field(default_factory=Grid)  # by site and rank

    def with_rows(self, connection: DuckDBPyConnection) -> RankCells:
        """These cells with a connection's rows added. The table ``page_sites`` must exist. Raises: Misfit."""
        rows = f"{RAW} JOIN page_sites USING (layer, tensor)"
        pairs = connection.execute(f"SELECT DISTINCT site, rank FROM {rows} ORDER BY ALL").fetchall()
        recorded = column_of(connection, f"SELECT DISTINCT step FROM {RAW}")
        grid = self._grid.grown(pairs, recorded, lambda steps, num: stretches(steps, min(MAX_STRETCHES, MAX_CELLS // max(1, num))))
        grid.axis.make_table(connection, "page_rank_steps", recorded)
        found = connection.execute(f"""
            SELECT site, rank, col, max(abs_max) AS amax, max(num_nan + num_pos_inf + num_neg_inf) > 0 AS bad
            FROM {rows} JOIN page_rank_steps USING (step) GROUP BY ALL
        """).fetchnumpy()
        bad = np.ma.filled(found["bad"], False).astype(bool)
        amax = np.where(bad, np.float32(np.inf), as_float32(np.ma.filled(found["amax"], np.nan)))
        places = [grid.rows[pair] for pair in zip(found["site"].tolist(), found["rank"].tolist(), strict=True)]
        grid.put(_AMAX, np.asarray(places, dtype=np.int64), np.asarray(found["col"]), amax)
        return RankCells(grid)

    def num_ranks(self, shown: Sequence[int]) -> list[int]:
        """How many ranks wrote each site."""
        of = Counter(site for site, _ in self._grid.rows)
        return [of[site] for site in shown]

    def ranks(self, shown: Sequence[int]) -> RankAmax | None:
        """The amax of each of a page's sites on each rank; None if no site was written by several ranks."""
        rows = [row for row, num in enumerate(self.num_ranks(shown)) if num > 1]
        if not rows:
            return None
        axis, cells = self._grid.axis, self._grid.cells(_AMAX)
        ranks = sorted({rank for _, rank in self._grid.rows})[:MAX_RANKS]
        rows = rows[: MAX_CELLS // len(ranks)]
        amax = np.full((len(rows), len(ranks), len(axis)), np.nan, dtype=np.float32)
        for i, row in enumerate(rows):
            for j, rank in enumerate(ranks):
                place = self._grid.rows.get((shown[row], rank))
                if place is not None:
                    amax[i, j] = cells[place]
        return RankAmax(tuple(ranks), tuple(rows), axis.first, axis.last, amax)
