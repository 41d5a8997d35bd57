"""A run at a glance, while it goes on: read again only where its files have changed."""

from __future__ import annotations

from dataclasses import dataclass

from numscope.page.gathered import Gathered
from numscope.page.health import Health, judge
from numscope.page.matrices import Matrices
from numscope.page.recorded import Recorded, read_recorded, read_statistics
from numscope.runs.sources import Signature, source_of


@dataclass(frozen=True, slots=True)
class Glance:
    """What is known of a run at some time."""

    recorded: Recorded
    matrices: Matrices | None  # of its statistics; None and empty if it has none
    health: tuple[Health, ...]  # of its statistics; None and empty if it has none
    problems: tuple[str, ...]  # what could not be read, a sentence each
    written: float  # when its latest record was, in seconds since 1970; 0 without one


def stamp_of(folder: str) -> Signature:
    """What changes when a run writes records. *Cost:* a call of ``stat`` for each of its files."""
    try:
        return source_of(folder).signature()
    except Exception:  # whoever reads it says what is wrong
        return {}


def glance_at(folder: str, gathered: Gathered | None = None) -> Glance:
    """What a run's folder holds now.

    Args:
        gathered: what is known of its statistics; it then is as the run is now.

    Raises: UsageError where there is no folder, no run, or nothing in it yet.
    *Cost:* that of a page's statistics, a few seconds for ten million rows; of those that are gathered, what is new.
    """
    stamp = stamp_of(folder)
    recorded = read_recorded(folder)
    statistics, problems = read_statistics(recorded, gathered)
    matrices = None if statistics is None else statistics.matrices
    health = () if matrices is None else tuple(judge(matrices))
    return Glance(recorded, matrices, health, problems, max((told[-1] for told in stamp.values()), default=0.0))
