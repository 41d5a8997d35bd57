"""Largest magnitudes rank by rank, so that the odd one out can be seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from numscope.page.axis import stretches
from numscope.page.matrices import SiteRow, placed
from numscope.records.words import count
from numscope.runs.query import RAW, column_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_RANKS = 512
MAX_CELLS = 500_000
MAX_STRETCHES = 96
ODD = 2.0  # times the median, or its half
MOST_APART = 5  # ranks that are named


@dataclass(frozen=True, slots=True)
class Outlier:
    """A rank whose largest magnitude is not the other ranks'."""

    rank: int
    site: int  # row of the matrices
    step: int  # the last of its stretch
    value: float  # inf where some element was not finite
    median: float  # over the ranks

    def line(self, sites: Sequence[SiteRow], name: Callable[[str], str]) -> str:
        """In words; ``name`` makes names of sites fit to be shown."""
        site = sites[self.site]
        where = f"{name(site.layer)} {name(site.tensor)}, step {self.step:,}"
        return f"rank {self.rank}: {self.value:.4g} in {where}; the median is {self.median:.4g}"


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
    num_ranks: int  # how many wrote; of too many those are here that stand apart most
    apart: tuple[Outlier, ...]  # the ranks that stand apart most, the first most of all
    num_apart: int  # how many do

    def headline(self) -> str:
        """How many ranks stand apart."""
        return f"{self.num_apart:,} of {count(self.num_ranks, 'rank')} apart from the median by a factor of {ODD:g} or more"


def read_ranks(connection: DuckDBPyConnection) -> RankAmax | None:
    """The amax of each of a page's sites on each rank; None if no site was written by several ranks. Needs the table ``page_sites``."""
    sites = column_of(
        connection, f"SELECT site FROM {RAW} JOIN page_sites USING (layer, tensor) GROUP BY site HAVING count(DISTINCT rank) > 1 ORDER BY 1"
    )
    if not sites:
        return None
    every = column_of(connection, f"SELECT DISTINCT rank FROM {RAW} ORDER BY 1")
    sites = sites[: MAX_CELLS // min(len(every), MAX_RANKS)]
    steps = column_of(connection, f"SELECT DISTINCT step FROM {RAW} ORDER BY 1")
    axis = stretches(steps, min(MAX_STRETCHES, MAX_CELLS // (len(sites) * len(every))))
    axis.make_table(connection, "page_rank_steps")
    found = connection.execute(f"""
        SELECT site, rank, col, max(abs_max) AS amax, max(num_nan + num_pos_inf + num_neg_inf) > 0 AS bad
        FROM {RAW} JOIN page_sites USING (layer, tensor) JOIN page_rank_steps USING (step) WHERE site IN ({", ".join(map(str, sites))})
        GROUP BY ALL
    """).fetchnumpy()
    place = np.searchsorted(sites, found["site"]), np.searchsorted(every, found["rank"]), found["col"]
    amax = placed((len(sites), len(every), len(axis)), place, found["amax"])
    bad = np.ma.filled(found["bad"], False).astype(bool)
    amax[tuple(np.asarray(indices)[bad] for indices in place)] = np.inf
    median, factor = _apart(amax)
    by_rank = factor.max(axis=(0, 2))
    order = np.argsort(-by_rank, kind="stable")
    num_apart = int((by_rank >= np.log(ODD)).sum())
    apart = []
    for j in order[: min(num_apart, MOST_APART)].tolist():
        i, k = np.unravel_index(factor[:, j].argmax(), (len(sites), len(axis)))
        apart.append(Outlier(every[j], sites[i], axis.last[k], float(amax[i, j, k]), float(median[i, 0, k])))
    kept = np.sort(order[:MAX_RANKS])
    ranks = tuple(every[j] for j in kept.tolist())
    return RankAmax(ranks, tuple(sites), axis.first, axis.last, amax[:, kept], len(every), tuple(apart), num_apart)


def _apart(amax: Any) -> tuple[Any, Any]:
    """Of sites × ranks × stretches the medians over the ranks, and of each cell the logarithm of its factor from the median, 0 without one.

    What is not finite, or is zero where the median is not, is farthest, unless most ranks have it. From a median of 0, and of two ranks,
    nothing else is apart: a number is not the odd one for being larger than the only other.
    """
    known = ~np.isnan(amax)
    filled = np.sort(np.where(known, amax, np.inf), axis=1)
    num_known = known.sum(axis=1, keepdims=True)
    middle = np.maximum(num_known - 1, 0) // 2
    median = np.take_along_axis(filled, middle, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.abs(np.log(amax.astype(np.float64)) - np.log(median.astype(np.float64)))
    is_asked = known & (amax != median) & (((num_known > 2) & (median > 0)) | np.isinf(amax))
    return median, np.where(is_asked, np.nan_to_num(factor, nan=np.inf, posinf=np.inf), 0.0)
