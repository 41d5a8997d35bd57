"""A page's statistics of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numscope.page.histograms import Histograms, read_histograms
from numscope.page.matrices import Matrices, read_matrices
from numscope.page.rank_cells import RankAmax, read_ranks
from numscope.runs.folder import Run
from numscope.runs.query import RAW, reading

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """A run's statistics as a page shows them."""

    matrices: Matrices
    histograms: Histograms | None
    ranks: RankAmax | None
    starts: tuple[tuple[int, int], ...]  # the first step of each attempt


def statistics_of(run: Run, findings: Sequence[int]) -> RunStatistics:
    """The statistics of a run; around steps with findings each step has its own column. Raises: UsageError where they can't be read."""

    def read(connection: DuckDBPyConnection) -> RunStatistics:
        matrices = read_matrices(connection, findings)
        starts = connection.execute(f"SELECT attempt, min(step) FROM {RAW} GROUP BY attempt ORDER BY attempt").fetchall()
        return RunStatistics(matrices, read_histograms(connection), read_ranks(connection), tuple(starts))

    return reading(run, read, held=True)
