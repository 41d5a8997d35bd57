"""Exponent histograms of a run's sites, merged over a few stretches of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from numscope.page.axis import stretches
from numscope.runs.query import RAW, column_of, columns_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

COLUMN = "exponents"
MAX_CELLS = 1_500_000  # numbers in a page; most are zero
MAX_STRETCHES = 400
NUM_BINS = 256  # one for each exponent of float32


@dataclass(frozen=True, slots=True)
class Histograms:
    first: tuple[int, ...]  # steps of each stretch
    last: tuple[int, ...]  # steps of each stretch
    sites: tuple[int, ...]  # rows of the matrices that have histograms
    lowest: int  # biased float32 exponent of the first bin
    bins: int
    counts: Any  # float32 array, sites × stretches × bins; a site without one in a stretch has zeros


def read_histograms(connection: DuckDBPyConnection) -> Histograms | None:
    """The histograms of a page's sites, for which the table ``page_sites`` must exist; None if the run has none."""
    if COLUMN not in columns_of(connection):
        return None
    rows = f"FROM {RAW} JOIN page_sites USING (layer, tensor) WHERE {COLUMN} IS NOT NULL AND len({COLUMN}) = {NUM_BINS}"
    sites = column_of(connection, f"SELECT DISTINCT site {rows} ORDER BY 1")
    if not sites:
        return None
    steps = column_of(connection, f"SELECT DISTINCT step {rows} ORDER BY 1")
    axis = stretches(steps, min(MAX_STRETCHES, MAX_CELLS // (NUM_BINS * len(sites))))
    axis.make_table(connection, "page_stretches")
    found = connection.execute(f"""
        SELECT site, col, bin, CAST(sum(num) AS DOUBLE) AS num FROM (
            SELECT site, col, unnest({COLUMN}) AS num, generate_subscripts({COLUMN}, 1) - 1 AS bin
            FROM (SELECT site, step, {COLUMN} {rows}) JOIN page_stretches USING (step)
        ) WHERE num > 0 GROUP BY ALL
    """).fetchnumpy()
    counts = np.zeros((len(sites), len(axis), NUM_BINS), dtype=np.float32)
    counts[np.searchsorted(sites, found["site"]), np.asarray(found["col"]), np.asarray(found["bin"])] = np.ma.filled(found["num"], 0)
    filled = np.flatnonzero(counts.any(axis=(0, 1)))
    lowest, highest = (int(filled[0]), int(filled[-1])) if len(filled) else (127, 127)
    counts = counts[:, :, lowest : highest + 1]
    return Histograms(axis.first, axis.last, tuple(sites), lowest, counts.shape[2], counts)
