"""Largest magnitudes rank by rank, so that the odd one out can be seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numscope.page.columns import as_float32
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


def read_ranks(connection: DuckDBPyConnection) -> Ranks | None:
    """The ranks of the sites in the table ``page_sites``; None if no site was written by several."""
    import numpy as np

    rows = f"{RAW} JOIN page_sites USING (layer, tensor)"
    sites = [
        x for (x,) in connection.execute(f"SELECT site FROM {rows} GROUP BY site HAVING count(DISTINCT rank) > 1 ORDER BY 1").fetchall()
    ]
    if not sites:
        return None
    ranks = [x for (x,) in connection.execute(f"SELECT DISTINCT rank FROM {RAW} ORDER BY 1").fetchall()][:MAX_RANKS]
    sites = sites[: MAX_CELLS // len(ranks)]
    steps = [x for (x,) in connection.execute(f"SELECT DISTINCT step FROM {RAW} ORDER BY 1").fetchall()]
    num = max(1, min(len(steps), MAX_STRETCHES, MAX_CELLS // (len(sites) * len(ranks))))
    stretches = [i * num // len(steps) for i in range(len(steps))]
    connection.execute("CREATE TEMP TABLE page_rank_steps (step BIGINT, stretch INTEGER)")
    connection.execute("INSERT INTO page_rank_steps SELECT unnest(?), unnest(?)", [steps, stretches])
    connection.execute("CREATE TEMP TABLE page_rank_sites (site BIGINT, place INTEGER)")
    connection.execute("INSERT INTO page_rank_sites SELECT unnest(?), unnest(?)", [sites, list(range(len(sites)))])
    connection.execute("CREATE TEMP TABLE page_ranks (rank BIGINT, line INTEGER)")
    connection.execute("INSERT INTO page_ranks SELECT unnest(?), unnest(?)", [ranks, list(range(len(ranks)))])
    found = connection.execute(f"""
        SELECT page_rank_sites.place AS place, line, stretch, max(abs_max) AS amax, max(num_nan + num_pos_inf + num_neg_inf) > 0 AS bad
        FROM {rows} JOIN page_rank_sites USING (site) JOIN page_ranks USING (rank) JOIN page_rank_steps USING (step) GROUP BY ALL
    """).fetchnumpy()
    amax = np.full((len(sites), len(ranks), num), np.nan, dtype=np.float32)
    bad = np.ma.filled(found["bad"], False).astype(bool)
    cells = np.where(bad, np.float32(np.inf), as_float32(np.ma.filled(found["amax"], np.nan)))
    amax[np.asarray(found["place"]), np.asarray(found["line"]), np.asarray(found["stretch"])] = cells
    first = [steps[stretches.index(i)] for i in range(num)]
    last = [*(steps[stretches.index(i) - 1] for i in range(1, num)), steps[-1]]
    return Ranks(tuple(ranks), tuple(map(int, sites)), tuple(first), tuple(last), amax)
