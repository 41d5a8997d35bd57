"""Lists the parts of a run's folder, without reading them."""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numscope.records.errors import UsageError
from numscope.records.files import read_json
from numscope.records.words import few
from numscope.runs.sources import Fingerprint, Local, Remote, Source, is_of_run, no_run, source_of
from numscope.sinks.part_files import PartName, split_merged
from numscope.sinks.runfolder import RUN_FILE, STATISTICS
from numscope.sinks.seal import is_sound, text_in

if TYPE_CHECKING:
    from numscope.storage.ranges import RangeFiles

_NOTHING_YET = (
    "holds a run that has written no statistics yet: the first come half a minute after a scheduled step, "
    "without a configuration at the tenth step, or when the run ends. A run that was killed before that has none, "
    "and neither has one without pyarrow: pip install 'numscope[runs]'."
)
DAMAGED = "is damaged or incomplete"  # in messages about a broken part
HOLDS = b"numscope_holds"  # in a compacted part's footer: names of the parts that its set was made of
MAX_HELD_BYTES = 64 << 20  # of those names

_unsound: set[tuple[str, str, Fingerprint]] = set()  # parts that a reader found damaged where it read: folder, name, fingerprint


@dataclass(frozen=True, slots=True)
class Run:
    source: Source  # where it lies
    parts: tuple[PartName, ...]  # its whole Parquet files, by rank, attempt and time
    listed: Mapping[str, Fingerprint]  # its parts by name
    broken: tuple[str, ...] = ()  # names of files that are not whole or not sound; no kill leaves one, a bad disk may
    ranges: RangeFiles | None = None  # reads the parts of a run in another storage, and compacted ones
    superseded: tuple[str, ...] = ()  # names of parts that do not count, as others have their rows

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
        if self.ranges is not None and name in self.ranges.listed:
            return self.ranges.path_of(name)
        return os.path.join(self.path, STATISTICS, name)

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
        """Whether some rank wrote in several attempts, or may have: a compacted part's name has the latest one."""
        if any(part.made for part in self.parts):
            return max(part.attempt for part in self.parts) > 1
        attempts = {(part.rank, part.attempt) for part in self.parts}
        return len(attempts) > len({rank for rank, _ in attempts})


def find_run(folder: str | os.PathLike[str], where: str = "RUN", *, whole: bool = False) -> Run:
    """The run in a folder, which is the ``log_dir`` that it was given, and which messages call ``where``.

    Args:
        whole: compacted parts are checked as a whole, rather than where they are read.

    Raises: UsageError where there is no folder, no run, or nothing in it yet.
    """
    given = os.fspath(folder)
    source = source_of(given, where)
    source.check()
    if isinstance(source, Local) and any("\ud800" <= c <= "\udfff" for c in source.path):
        raise UsageError(f"{where}: got {given!r}, a name that is not UTF-8, which DuckDB can't read. Rename it, or use a link to it.")
    listed, found, missing, superseded = _listed(source)
    # Another storage has whole parts or none.
    broken = (*(() if isinstance(source, Remote) else _broken(source, found, listed, where, whole)), *missing)
    broken += tuple(part.name for part in found if (source.path, part.name, listed[part.name]) in _unsound)
    parts = tuple(part for part in found if part.name not in broken)
    if broken and not parts:
        raise UsageError(
            f"{where}: {given!r} has no part that can be read: {few([f'{STATISTICS}/{name}' for name in broken], 3)} {DAMAGED}."
        )
    if not parts:
        own = [*filter(is_of_run, source.names())]
        if own == [RUN_FILE] and isinstance(source, Local) and _is_foreign(os.path.join(source.path, RUN_FILE)):
            raise no_run(where, given, f"Its {RUN_FILE} is not numscope's.")
        if own:
            raise UsageError(f"{where}: {given!r} {_NOTHING_YET}")
        raise no_run(where, given, "There is no run." if isinstance(source, Remote) else _inside(source.path))
    in_ranges = {part.name: listed[part.name][1] for part in parts if part.made or isinstance(source, Remote)}
    ranges = source.ranges(in_ranges) if in_ranges else None
    return Run(source, parts, listed, tuple(dict.fromkeys(broken)), ranges=ranges, superseded=superseded)


def _is_foreign(path: str) -> bool:
    """Whether a file that has the name of ``run.json`` is another program's: whole, and without attempts."""
    try:
        told = read_json(path)
        return bool(told) and "attempts" not in told
    except (OSError, ValueError, TypeError):
        return False


def found_unsound(run: Run, names: Iterable[str]) -> None:
    """Remember parts that were found damaged as they were read, as long as nobody writes them anew."""
    _unsound.update((run.path, name, run.listed[name]) for name in names)


def _listed(source: Source) -> tuple[Mapping[str, Fingerprint], list[PartName], list[str], tuple[str, ...]]:
    """A run's files by name, the parts that count, names of parts that are missing, and names of those that do not count.

    A set of compacted parts counts once it is whole: then the parts that it was made of count no more, which are removed one after the
    other. So one that is not whole counts if some of those are gone: it has lost a part.
    """
    for is_sure in (False, True):
        listed = source.parts()
        found = split_merged(listed)[0]
        sets: dict[str, list[PartName]] = {}
        for part in found:
            if part.made:
                sets.setdefault(part.made, []).append(part)
        whole = {made for made, parts in sets.items() if len(parts) == parts[0].num}
        if not sets or (len(whole) == 1 and len(sets[next(iter(whole))]) == len(found)):
            return listed, found, [], ()
        held = {made: _held(source, listed, parts) for made, parts in sets.items()}
        counted = {made for made in sets if made in whole or not held[made] <= listed.keys()}
        gone = set().union(*(held[made] for made in counted)) | {part.name for part in found if part.made and part.made not in counted}
        missing = []
        for made in counted - whole:
            if not gone & {part.name for part in sets[made]}:  # else another set was made of it
                one = sets[made][0]
                names = [PartName.compacted(made, one.attempt, place, one.num) for place in range(1, one.num + 1)]
                missing += [name for name in names if name not in listed]
        if is_sure or not missing:  # a set may have become whole while its folder was listed
            break
    return listed, [part for part in found if part.name not in gone], missing, tuple(sorted(gone & listed.keys()))


def _held(source: Source, listed: Mapping[str, Fingerprint], parts: Sequence[PartName]) -> set[str]:
    """Names of the parts that a set was made of, from the first footer that has them."""
    ranges = source.ranges({part.name: listed[part.name][1] for part in parts})
    for part in parts:
        with contextlib.suppress(OSError, ValueError, zlib.error):
            text = zlib.decompressobj().decompress(base64.b64decode(text_in(ranges.footer(part.name), HOLDS) or b""), MAX_HELD_BYTES)
            if text:
                return set(text.decode().split("\n"))
    return set()


def _broken(source: Local, found: Sequence[PartName], listed: Mapping[str, Fingerprint], where: str, whole: bool) -> tuple[str, ...]:
    """Names of files that are not whole or not sound. Raises: UsageError for links."""
    paths = {part.name: os.path.join(source.path, STATISTICS, part.name) for part in found}
    for place in (os.path.join(source.path, STATISTICS), *paths.values()):
        if os.path.islink(place):
            raise UsageError(
                f"{where}: {place!r} is a link, expected a file or folder: links in a run are not followed. Copy what it names."
            )
    return tuple(name for name, path in paths.items() if not _is_readable(path, listed[name], whole))


def _is_readable(path: str, fingerprint: Fingerprint, whole: bool) -> bool:
    """Whether a part is whole and holds what was written."""
    try:
        return os.path.isfile(path) and _is_sound(path, fingerprint, whole)  # a pipe would block forever
    except OSError:
        return False


@functools.lru_cache(maxsize=1 << 16)
def _is_sound(path: str, fingerprint: Fingerprint, whole: bool) -> bool:
    """The answer for a file that nobody has written since: a live view asks every second. *Cost:* one pass over the file."""
    return is_sound(path, whole)


def _inside(path: str) -> str:
    """Advice about a folder that is not a run's."""
    runs = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and os.path.exists(os.path.join(entry.path, RUN_FILE)))
    if runs:
        return f"Did you mean {os.path.join(path, runs[0])!r}?"
    return "It holds other things." if os.listdir(path) else "It is empty."
