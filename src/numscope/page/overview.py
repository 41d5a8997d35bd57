"""An overview of a run."""

from __future__ import annotations

from dataclasses import dataclass

from numscope.page.health import Health, judge
from numscope.page.matrices import Matrices
from numscope.page.rank_cells import RankAmax
from numscope.page.recorded import Recorded, read_recorded, read_statistics
from numscope.runs.sources import Signature, source_of


@dataclass(frozen=True, slots=True)
class Overview:
    """A run as it is known at some time."""

    recorded: Recorded
    matrices: Matrices | None  # its statistics; None if it has none
    health: tuple[Health, ...]  # the health of each site in ``matrices``
    problems: tuple[str, ...]  # what could not be read, a sentence each
    ranks: RankAmax | None  # its sites on each rank; None if no site was written by several
    written: float  # when its latest record was, in seconds since 1970; 0 without one


def stamp_of(folder: str) -> Signature:
    """A value that changes when the run writes records. *Cost:* a call of ``stat`` for each of its files."""
    try:
        return source_of(folder).signature()
    except Exception:  # reading the run raises the error
        return {}


def overview_of(folder: str, copied: str | None = None) -> Overview:
    """Reads a run's folder. ``copied``: see ``read_recorded``.

    Raises: UsageError where there is no folder, no run, or nothing in it yet.
    *Cost:* that of a page's statistics, a few seconds for ten million rows.
    """
    stamp = stamp_of(copied or folder)
    recorded = read_recorded(folder, copied=copied)
    statistics, problems = read_statistics(recorded)
    matrices = None if statistics is None else statistics.matrices
    health = () if matrices is None else tuple(judge(matrices, recorded.findings))
    ranks = None if statistics is None else statistics.ranks
    return Overview(recorded, matrices, health, problems, ranks, max((told[-1] for told in stamp.values()), default=0.0))
