"""Exponent histograms of a run's sites, merged over a few stretches of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from numscope.page.axis import stretches
from numscope.page.grid import Grid, Plane
from numscope.runs.query import RAW, column_of, columns_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

COLUMN = "exponents"
MAX_CELLS = 1_500_000  # numbers in a page; most are zero
MAX_STRETCHES = 400
NUM_BINS = 256  # one for each exponent of float32

_COUNTS: Plane = ("counts", "sum")


@dataclass(frozen=True, slots=True)
class Histograms:
    """Exponent histograms."""

    first: tuple[int, ...]  # steps of each stretch
    last: tuple[int, ...]  # steps of each stretch
    sites: tuple[int, ...]  # rows of the matrices that have histograms
    lowest: int  # biased float32 exponent of the first bin
    bins: int
    counts: Any  # float32 array, sites × stretches × bins; a site without one in a stretch has zeros


@dataclass(frozen=True, slots=True)
class HistogramCells:
    """All sites' histograms as they are gathered from a run's parts."""

    _grid: Grid = field(default_factory=lambda: Grid("float64", NUM_BINS))  # by site; exact up to 2^53

    def with_rows(self, connection: DuckDBPyConnection) -> HistogramCells:
        """These histograms with a connection's rows added. The table ``page_sites`` must exist. Raises: Misfit."""
        if COLUMN not in columns_of(connection):
            return self
        has_one = f"{COLUMN} IS NOT NULL AND len({COLUMN}) = {NUM_BINS}"
        rows = f"FROM {RAW} JOIN page_sites USING (layer, tensor) WHERE {has_one}"
        recorded = column_of(connection, f"SELECT DISTINCT step {rows}")
        if not recorded:
            return self
        sites = column_of(connection, f"SELECT DISTINCT site {rows} ORDER BY 1")
        grid = self._grid.grown(sites, recorded, lambda steps, num: stretches(steps, min(MAX_STRETCHES, MAX_CELLS // (NUM_BINS * num))))
        grid.axis.make_table(connection, "page_stretches", recorded)
        found = connection.execute(f"""
            SELECT site, col, bin, CAST(sum(num) AS DOUBLE) AS num FROM (
                SELECT site, col, unnest({COLUMN}) AS num, generate_subscripts({COLUMN}, 1) - 1 AS bin
                FROM {RAW} JOIN page_sites USING (layer, tensor) JOIN page_stretches USING (step) WHERE {has_one}
            ) WHERE num > 0 GROUP BY ALL
        """).fetchnumpy()
        first = np.asarray([grid.rows[site] * NUM_BINS for site in found["site"].tolist()], dtype=np.int64)
        grid.put(_COUNTS, first + np.asarray(found["bin"]), np.asarray(found["col"]), np.ma.filled(found["num"], 0))
        return HistogramCells(grid)

    def histograms(self, shown: Sequence[int]) -> Histograms | None:
        """The histograms of a page's sites; None if the run has none."""
        axis, rows = self._grid.axis, self._grid.rows
        sites = [(row, rows[site]) for row, site in enumerate(shown) if site in rows]
        if not sites:
            return None
        counts = self._grid.cells(_COUNTS).reshape(-1, NUM_BINS, len(axis))[[row for _, row in sites]]
        filled = np.flatnonzero(counts.any(axis=(0, 2)))
        lowest, highest = (int(filled[0]), int(filled[-1])) if len(filled) else (127, 127)
        counts = counts[:, lowest : highest + 1].transpose(0, 2, 1).astype(np.float32)
        return Histograms(axis.first, axis.last, tuple(row for row, _ in sites), lowest, counts.shape[2], counts)
