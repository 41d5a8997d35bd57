"""Lists the parts of a run's folder, without reading them."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numscope.records.errors import UsageError
from numscope.records.words import few
from numscope.runs.sources import Fingerprint, Local, Remote, Source, instead, is_of_run, source_of
from numscope.sinks.part_files import PartName, split_merged
from numscope.sinks.runfolder import RUN_FILE, STATISTICS
from numscope.sinks.seal import is_sound

if TYPE_CHECKING:
    from numscope.storage.ranges import RangeFiles

_NOTHING_YET = (
    "holds a run that has written no statistics yet: the first come half a minute after a scheduled step, "
    "or when the run ends, without a configuration at a finding and at the end. A run that was killed before that has none, "
    "and neither has one without pyarrow: pip install 'numscope[runs]'."
)
DAMAGED = "is damaged or incomplete"  # in messages about a broken part


@dataclass(frozen=True, slots=True)
class Run:
    """A run's folder."""

    source: Source  # where it lies
    parts: tuple[PartName, ...]  # its whole Parquet files, by rank, attempt and time
    listed: Mapping[str, Fingerprint]  # its parts by name
    broken: tuple[str, ...] = ()  # names of files that are not whole or not sound; no kill leaves one, a bad disk may
    known_rows: Mapping[str, int] = field(default_factory=dict)  # by part, how many of its first rows are skipped
    known_starts: Mapping[tuple[int, int], int] = field(default_factory=dict)  # by rank and attempt, the first step in other parts
    ranges: RangeFiles | None = None  # reads the parts of a run in another storage

    @property
    def path(self) -> str:
        """The folder, absolute."""
        return self.source.path

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each file that is left out."""
        return tuple(f"{STATISTICS}/{name} {DAMAGED}, and is left out." for name in self.broken)

    @property
    def paths(self) -> list[str]:
        """The paths of its parts, as DuckDB knows them."""
        return [self.path_of(part.name) for part in self.parts]

    def path_of(self, name: str) -> str:
        """The path of a part, as DuckDB knows it."""
        return os.path.join(self.path, STATISTICS, name) if self.ranges is None else self.ranges.path_of(name)

    @property
    def num_bytes(self) -> int:
        """The size of its parts in bytes."""
        return sum(self.listed[part.name][1] for part in self.parts)

    @property
    def is_there(self) -> bool:
        """Whether all of its parts still are: ranks merge parts while others read."""
        try:
            now = self.source.parts()
        except Exception:  # any error of a storage's package: listing again would not help
            return True
        return all(now.get(part.name) == self.listed[part.name] for part in self.parts)

    @property
    def restarted(self) -> bool:
        """Whether some rank wrote in several attempts."""
        attempts = {*self.known_starts, *((part.rank, part.attempt) for part in self.parts)}
        return len(attempts) > len({rank for rank, _ in attempts})


def find_run(folder: str | os.PathLike[str], where: str = "RUN") -> Run:
    """The run in a folder, which is the ``log_dir`` that it was given, and which messages call ``where``.

    Raises: UsageError where there is no folder, no run, or nothing in it yet.
    """
    given = os.fspath(folder)
    source = source_of(given, where)
    if isinstance(source, Remote):
        source.check()
    elif not os.path.isdir(source.path):
        raise UsageError(f"{where}: got {given!r}, expected a run's folder: the log_dir that it was given. {instead(source.path)}")
    elif any("\ud800" <= c <= "\udfff" for c in source.path):
        raise UsageError(f"{where}: got {given!r}, a name that is not UTF-8, which DuckDB can't read. Rename it, or use a link to it.")
    listed = source.parts()
    found = split_merged(listed)[0]
    broken = () if isinstance(source, Remote) else _broken(source, found, listed, where)  # another storage has whole parts or none
    parts = tuple(part for part in found if part.name not in broken)
    if broken and not parts:
        raise UsageError(
            f"{where}: {given!r} has no part that can be read: {few([f'{STATISTICS}/{name}' for name in broken], 3)} {DAMAGED}."
        )
    if not parts:
        if any(map(is_of_run, source.names())):
            raise UsageError(f"{where}: {given!r} {_NOTHING_YET}")
        hint = "" if isinstance(source, Remote) else f" {_inside(source.path)}"
        raise UsageError(f"{where}: got {given!r}, expected a folder with {RUN_FILE} and {STATISTICS}/*.parquet in it.{hint}")
    ranges = source.ranges({part.name: listed[part.name][1] for part in parts}) if isinstance(source, Remote) else None
    return Run(source, parts, listed, broken, ranges=ranges)


def _broken(source: Local, found: Sequence[PartName], listed: Mapping[str, Fingerprint], where: str) -> tuple[str, ...]:
    """Names of files that are not whole or not sound. Raises: UsageError for links."""
    paths = {part.name: os.path.join(source.path, STATISTICS, part.name) for part in found}
    for place in (os.path.join(source.path, STATISTICS), *paths.values()):
        if os.path.islink(place):
            raise UsageError(
                f"{where}: {place!r} is a link, expected a file or folder: links in a run are not followed. Copy what it names."
            )
    return tuple(name for name, path in paths.items() if not _is_readable(path, listed[name]))


def _is_readable(path: str, fingerprint: Fingerprint) -> bool:
    """Whether a part is whole and holds what was written."""
    try:
        return os.path.isfile(path) and _is_sound(path, fingerprint)  # a pipe would block forever
    except OSError:
        return False


@functools.lru_cache(maxsize=1 << 16)
def _is_sound(path: str, fingerprint: Fingerprint) -> bool:
    """The answer for a file that nobody has written since: a live view asks every second. *Cost:* one pass over the file."""
    return is_sound(path)


def _inside(path: str) -> str:
    """Advice about a folder that is not a run's."""
    runs = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and os.path.exists(os.path.join(entry.path, RUN_FILE)))
    if runs:
        return f"Did you mean {os.path.join(path, runs[0])!r}?"
    return "Runs write them where pyarrow is installed." if os.listdir(path) else "It is empty."
