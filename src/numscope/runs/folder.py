"""Finds what a run's folder holds, without reading it."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numscope.records.attempt import RANKS
from numscope.records.errors import UsageError
from numscope.records.words import few
from numscope.runs.sources import Remote, instead, is_of_run
from numscope.sinks.parts import PartName, split_merged
from numscope.sinks.runfolder import RUN_FILE, STATISTICS
from numscope.sinks.seal import is_sound
from numscope.storage.address import is_address

if TYPE_CHECKING:
    from numscope.storage.ranges import RangeFiles

_NOTHING_YET = (
    "holds a run that has written no statistics yet: the first come half a minute after a scheduled step, "
    "or when the run ends, without a configuration at a finding and at the end. A run that was killed before that has none, "
    "and neither has one without pyarrow: pip install 'numscope[runs]'."
)
DAMAGED = "is damaged or incomplete"  # what is said of a part that is broken
_MAGIC = b"PAR1"  # what a Parquet file begins and ends with


Fingerprint = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Run:
    """A run's folder."""

    path: str  # the folder, absolute
    parts: tuple[PartName, ...]  # its whole Parquet files, by rank, attempt and time
    broken: tuple[str, ...] = ()  # names of files that are not whole or not sound; no kill leaves one, a bad disk may
    known_rows: Mapping[str, int] = field(default_factory=dict)  # by part: of how many of its first rows nothing is wanted
    known_starts: Mapping[tuple[int, int], int] = field(default_factory=dict)  # by rank and attempt: the first step, in other parts
    ranges: RangeFiles | None = None  # of a run in another storage: by which its parts are read
    listed: Mapping[str, Fingerprint] = field(default_factory=dict)  # of such a run: its parts by name

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each file that is left out."""
        return tuple(f"{STATISTICS}/{name} {DAMAGED}, and is left out." for name in self.broken)

    @property
    def paths(self) -> list[str]:
        """Those of its parts, as DuckDB knows them."""
        return [self.path_of(part.name) for part in self.parts]

    def path_of(self, name: str) -> str:
        """A part's."""
        return os.path.join(self.path, STATISTICS, name) if self.ranges is None else self.ranges.path_of(name)

    def fingerprint(self, name: str) -> Fingerprint:
        """What changes where a part is written anew; its size is in the middle. Raises: FileNotFoundError."""
        if self.ranges is not None:
            return self.listed[name]
        told = os.stat(self.path_of(name))
        return told.st_ino, told.st_size, told.st_mtime_ns

    @property
    def num_bytes(self) -> int:
        """Of its parts."""
        return sum(self.fingerprint(part.name)[1] for part in self.parts)

    @property
    def is_there(self) -> bool:
        """Whether all of its parts still are: ranks merge parts while others read."""
        if self.ranges is None:
            return all(map(os.path.exists, self.paths))
        try:
            now = Remote(self.path).parts()
        except Exception:  # whatever a storage's package raises: it is away, which is no reason to look again
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
    if is_address(given):
        return _find_remote(given, where)
    path = os.path.abspath(given)
    if not os.path.isdir(path):
        raise UsageError(f"{where}: got {given!r}, expected a run's folder: the log_dir that it was given. {instead(path)}")
    if any("\ud800" <= c <= "\udfff" for c in path):
        raise UsageError(f"{where}: got {given!r}, a name that is not UTF-8, which DuckDB can't read. Rename it, or use a link to it.")
    statistics = os.path.join(path, STATISTICS)
    found = split_merged(os.listdir(statistics))[0] if os.path.isdir(statistics) else []
    for place in (statistics, *(os.path.join(statistics, part.name) for part in found)):
        if os.path.islink(place):
            raise UsageError(
                f"{where}: {place!r} is a link, expected a file or folder: links in a run are not followed. Copy what it names."
            )
    broken = tuple(part.name for part in found if not _is_readable(os.path.join(statistics, part.name)))
    parts = tuple(part for part in found if part.name not in broken)
    if broken and not parts:
        raise UsageError(
            f"{where}: {given!r} has no part that can be read: {few([f'{STATISTICS}/{name}' for name in broken], 3)} {DAMAGED}."
        )
    if not parts:
        if os.path.exists(os.path.join(path, RUN_FILE)) or os.path.isdir(os.path.join(path, RANKS)):
            raise UsageError(f"{where}: {given!r} {_NOTHING_YET}")
        raise UsageError(f"{where}: got {given!r}, expected a folder with {RUN_FILE} and {STATISTICS}/*.parquet in it. {_inside(path)}")
    return Run(path, parts, broken)


def _find_remote(address: str, where: str) -> Run:
    """A run in another storage. Its parts are there whole or not at all."""
    source = Remote(address, where)
    source.check()
    listed = source.parts()
    parts = tuple(split_merged(listed)[0])
    if not parts:
        if not any(map(is_of_run, source.names())):
            raise UsageError(f"{where}: got {address!r}, expected a folder with {RUN_FILE} and {STATISTICS}/*.parquet in it.")
        raise UsageError(f"{where}: {address!r} {_NOTHING_YET}")
    ranges = source.ranges({part.name: listed[part.name][1] for part in parts})
    return Run(source.path, parts, ranges=ranges, listed=listed)


def _is_readable(path: str) -> bool:
    """Whether a part is whole and holds what was written."""
    try:
        told = os.stat(path)
        return os.path.isfile(path) and _is_sound(path, (told.st_ino, told.st_size, told.st_mtime_ns))  # a pipe would block forever
    except OSError:
        return False


@functools.lru_cache(maxsize=1 << 16)
def _is_sound(path: str, fingerprint: Fingerprint) -> bool:
    """The answer for a file that nobody has written since: a live view asks every second. *Cost:* one pass over the file."""
    return _is_whole(path) and is_sound(path)


def _is_whole(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            if file.read(4) != _MAGIC:
                return False
            file.seek(-4, os.SEEK_END)
            return file.read(4) == _MAGIC
    except OSError:
        return False


def _inside(path: str) -> str:
    """What to do about a folder that is no run's."""
    runs = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and os.path.exists(os.path.join(entry.path, RUN_FILE)))
    if runs:
        return f"Did you mean {os.path.join(path, runs[0])!r}?"
    return "Runs write them where pyarrow is installed." if os.listdir(path) else "It is empty."
