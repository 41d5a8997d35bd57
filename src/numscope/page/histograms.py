"""Exponent histograms of a run's sites, merged over a few stretches of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numscope.runs.query import RAW, columns_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

COLUMN = "exponents"
MAX_CELLS = 1_500_000  # numbers in a page; most are zero
MAX_STRETCHES = 400


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


def read_histograms(connection: DuckDBPyConnection) -> Histograms | None:
    """The histograms of the sites in the table ``page_sites``; None if the run has none."""
    import numpy as np

    if COLUMN not in columns_of(connection):
        return None
    rows = f"FROM {RAW} JOIN page_sites USING (layer, tensor) WHERE {COLUMN} IS NOT NULL AND len({COLUMN}) = 256"
    steps = [step for (step,) in connection.execute(f"SELECT DISTINCT step {rows} ORDER BY 1").fetchall()]
    sites = [site for (site,) in connection.execute(f"SELECT DISTINCT site {rows} ORDER BY 1").fetchall()]
    if not steps:
        return None
    num = max(1, min(len(steps), MAX_STRETCHES, MAX_CELLS // (len(sites) * 256)))
    stretch = {step: i * num // len(steps) for i, step in enumerate(steps)}
    connection.execute("CREATE TEMP TABLE page_stretches (step BIGINT, stretch INTEGER)")
    connection.execute("INSERT INTO page_stretches SELECT unnest(?), unnest(?)", [list(stretch), list(stretch.values())])
    found = connection.execute(f"""
        SELECT site, stretch, bin, sum(num) AS num FROM (
            SELECT site, stretch, unnest({COLUMN}) AS num, generate_subscripts({COLUMN}, 1) - 1 AS bin
            FROM {RAW} JOIN page_sites USING (layer, tensor) JOIN page_stretches USING (step)
            WHERE {COLUMN} IS NOT NULL AND len({COLUMN}) = 256
        ) WHERE num > 0 GROUP BY ALL
    """).fetchnumpy()
    bins = np.asarray(found["bin"])
    lowest, highest = (int(bins.min()), int(bins.max())) if len(bins) else (127, 127)
    counts = np.zeros((len(sites), num, highest - lowest + 1), dtype=np.float32)
    row = {site: i for i, site in enumerate(sites)}
    counts[[row[int(site)] for site in found["site"]], np.asarray(found["stretch"]), bins - lowest] = np.ma.filled(found["num"], 0)
    first, last = [0] * num, [0] * num
    for step, number in reversed(stretch.items()):
        first[number] = step
    for step, number in stretch.items():
        last[number] = step
    return Histograms(tuple(first), tuple(last), tuple(map(int, sites)), lowest, counts)
