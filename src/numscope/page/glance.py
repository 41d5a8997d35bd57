"""A run at a glance, while it goes on: read again only where its files have changed."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from numscope.page.gathered import Gathered
from numscope.page.health import Health, judge
from numscope.page.matrices import Matrices
from numscope.page.recorded import Recorded, read_recorded, read_statistics
from numscope.runs.sources import Remote
from numscope.sinks.runfolder import STATISTICS
from numscope.storage.address import is_address

Stamp = tuple[tuple[str, int, int], ...]

_FOLDERS = ("", STATISTICS, "ranks")  # where a run's records are


@dataclass(frozen=True, slots=True)
class Glance:
    """What is known of a run at some time.

    Args:
        matrices, health: of its statistics; None and empty if it has none.
        problems: what could not be read, a sentence each.
        written: when its latest record was, in seconds since 1970; 0 without one.
    """

    recorded: Recorded
    matrices: Matrices | None
    health: tuple[Health, ...]
    problems: tuple[str, ...]
    written: float


def stamp_of(folder: str) -> Stamp:
    """What changes when a run writes records: its files, their sizes and times. *Cost:* a call of ``stat`` each."""
    if is_address(folder):
        try:
            return tuple(sorted((name, int(told[0]), int(told[-1] * 1e9)) for name, told in Remote(folder).signature().items()))
        except Exception:  # whoever reads it says what is wrong
            return ()
    found = []
    for name in _FOLDERS:
        with contextlib.suppress(OSError), os.scandir(os.path.join(folder, name)) as entries:
            for entry in entries:
                if entry.name.endswith((".json", ".parquet")) and not entry.name.startswith("."):
                    with contextlib.suppress(OSError):  # merged with others just now
                        told = entry.stat(follow_symlinks=False)
                        found.append((os.path.join(name, entry.name), told.st_size, told.st_mtime_ns))
    return tuple(sorted(found))


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
    return Glance(recorded, matrices, health, problems, max((time for _, _, time in stamp), default=0) / 1e9)
