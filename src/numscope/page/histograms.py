"""Exponent histograms of a run's sites, merged over a few stretches of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numscope.page.axis import Axis, stretches
from numscope.page.folded import Folded, held
from numscope.runs.query import RAW, columns_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

COLUMN = "exponents"
MAX_CELLS = 1_500_000  # numbers in a page; most are zero
MAX_STRETCHES = 400
NUM_BINS = 256  # one for each exponent of float32


@dataclass(frozen=True, slots=True)
class Histograms:
    """Exponent histograms.

    Args:
        first, last: steps of each stretch.
        sites: rows of the matrices that have histograms.
        lowest: biased float32 exponent of the first bin.
        counts: float32 array, sites × stretches × bins; a site without one in a stretch has zeros.
    """

    first: tuple[int, ...]
    last: tuple[int, ...]
    sites: tuple[int, ...]
    lowest: int
    counts: Any


@dataclass(slots=True)
class HistogramCells:
    """All sites' histograms as they are gathered from a run's parts."""

    _rows: dict[int, int] = field(default_factory=dict)  # of each site that has any
    _steps: set[int] = field(default_factory=set)
    _axis: Axis = field(default_factory=lambda: Axis((), (), ()))
    _counts: Folded = field(default_factory=lambda: Folded("sum", "float64"))  # exact up to 2^53

    def read(self, connection: DuckDBPyConnection) -> Callable[[], None] | None:
        """What a connection's rows add: a function that takes it in. The table ``page_sites`` is there. Raises: Misfit."""
        import numpy as np

        if COLUMN not in columns_of(connection):
            return None
        rows = f"FROM {RAW} JOIN page_sites USING (layer, tensor) WHERE {COLUMN} IS NOT NULL AND len({COLUMN}) = {NUM_BINS}"
        recorded = [step for (step,) in connection.execute(f"SELECT DISTINCT step {rows}").fetchall()]
        sites = [site for (site,) in connection.execute(f"SELECT DISTINCT site {rows} ORDER BY 1").fetchall()]
        if not recorded:
            return None
        new = {site: len(self._rows) + i for i, site in enumerate(site for site in sites if site not in self._rows)}
        num_rows = NUM_BINS * (len(self._rows) + len(new))
        axis = stretches(sorted({*self._steps, *recorded}), min(MAX_STRETCHES, MAX_CELLS // num_rows))
        holding = held(axis, self._axis)
        connection.execute("CREATE TEMP TABLE page_stretches (step BIGINT, stretch INTEGER)")
        connection.execute("INSERT INTO page_stretches SELECT unnest(?), unnest(?)", [recorded, axis.columns(recorded)])
        found = connection.execute(f"""
            SELECT site, stretch, bin, CAST(sum(num) AS DOUBLE) AS num FROM (
                SELECT site, stretch, unnest({COLUMN}) AS num, generate_subscripts({COLUMN}, 1) - 1 AS bin
                FROM {RAW} JOIN page_sites USING (layer, tensor) JOIN page_stretches USING (step)
                WHERE {COLUMN} IS NOT NULL AND len({COLUMN}) = {NUM_BINS}
            ) WHERE num > 0 GROUP BY ALL
        """).fetchnumpy()

        def take() -> None:
            self._rows.update(new)
            self._steps.update(recorded)
            self._axis = axis
            self._counts.fit(holding, num_rows, len(axis))
            first = np.asarray([self._rows[site] * NUM_BINS for site in found["site"].tolist()], dtype=np.int64)
            self._counts.put(first + np.asarray(found["bin"]), np.asarray(found["stretch"]), np.ma.filled(found["num"], 0))

        return take

    def histograms(self, shown: Sequence[int]) -> Histograms | None:
        """Those of a page's sites; None if the run has none."""
        import numpy as np

        sites = [(row, self._rows[site]) for row, site in enumerate(shown) if site in self._rows]
        if not sites:
            return None
        counts = self._counts.cells.reshape(-1, NUM_BINS, len(self._axis))[[row for _, row in sites]]
        filled = np.flatnonzero(counts.any(axis=(0, 2)))
        lowest, highest = (int(filled[0]), int(filled[-1])) if len(filled) else (127, 127)
        counts = counts[:, lowest : highest + 1].transpose(0, 2, 1).astype(np.float32)
        return Histograms(self._axis.first, self._axis.last, tuple(row for row, _ in sites), lowest, counts)
