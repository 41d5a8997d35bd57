"""The Parquet files of one rank's attempt: replaced whole, and merged if small, so that a run of a month has few files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from numscope.records.faults import suppress
from numscope.records.files import replacing
from numscope.sinks.seal import BLANK, KEY, seal

SMALL_CELLS = 1 << 17  # a part with fewer numbers is merged with others
NUM_MERGED = 32  # consecutive small parts become one
MANY_LEFT = 8  # small parts, which are merged as the writer ends
GROUP_ROWS = 1 << 14  # in a row group, which readers skip by its steps' extrema; each takes 6 KB of the footer
ABANDONED_S = 3600.0  # age from which a temporary file belongs to a killed process

# Columns that a dictionary makes small; the other numbers rarely repeat.
REPEATED = ("layer", "cls", "tensor", "dtype", "step", "ord", "rank", "attempt", "ranks", "calls", "time")

ALL_RANKS = -1

_NAME = re.compile(r"rank(\d+)-(\d+)-(\d+)(?:-(\d+))?\.parquet")
_COMPACTED = re.compile(r"compacted-([0-9a-f]{16})-(\d+)-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class PartName:
    """The parts of a file name: rank, attempt, and the first and last flush in the file.

    A compacted part has the rows of many ranks (``ALL_RANKS``): it is one of the ``num`` parts of a set, whose latest attempt is named.
    """

    name: str
    rank: int
    attempt: int
    first: int
    last: int
    made: str = ""  # the set
    num: int = 1

    @classmethod
    def parse(cls, name: str) -> PartName | None:
        """None if the name is not a part's."""
        if match := _COMPACTED.fullmatch(name):
            return cls(name, ALL_RANKS, int(match[2]), int(match[3]), int(match[3]), match[1], int(match[4]))
        match = _NAME.fullmatch(name)
        return None if match is None else cls(name, int(match[1]), int(match[2]), int(match[3]), int(match[4] or match[3]))

    @classmethod
    def compacted(cls, made: str, attempt: int, place: int, num: int) -> str:
        """The name of the part at a place, from 1, of a set of so many."""
        return f"compacted-{made}-{attempt}-{place:05d}-{num:05d}.parquet"

    def holds(self, other: PartName) -> bool:
        """Whether it was made of another one and further ones, by their names."""
        same = (self.rank, self.attempt, self.made) == (other.rank, other.attempt, other.made)
        return same and self.first <= other.first and other.last <= self.last


def split_merged(names: Iterable[str]) -> tuple[list[PartName], list[PartName]]:
    """The parts in the order of writing, and separately those whose rows a merged part already contains.

    The latter exist only if a process was killed between writing a merged part and removing its sources.
    """
    found = sorted(
        (part for name in names if (part := PartName.parse(name))),
        key=lambda part: (part.rank, part.made, part.attempt, part.first, -part.last),
    )
    kept: list[PartName] = []
    held: list[PartName] = []
    for part in found:
        (held if kept and kept[-1].holds(part) else kept).append(part)
    return kept, held


def clear_remains(folder: str, rank: int) -> None:
    """Remove the remains of a rank's killed attempts: temporary files, and parts whose rows a merged part contains."""
    names = [name for name in os.listdir(folder) if name.lstrip(".").startswith(f"rank{rank}-")]
    remains = [part.name for part in split_merged(names)[1]]
    for name in names:
        if name.endswith(".tmp") and time.time() - os.stat(os.path.join(folder, name)).st_mtime > ABANDONED_S:
            remains.append(name)
    for name in remains:
        os.unlink(os.path.join(folder, name))


class PartFiles:
    """Writes parts ``rank<r>-<attempt>-<n>.parquet``; merged parts are named by their first and last number.

    *Cost:* a part of 2^20 numbers takes some 40 ms; merging ``NUM_MERGED`` small parts reads and writes at most 2^22 numbers.
    """

    def __init__(self, folder: str, rank: int, attempt: int) -> None:
        self._folder = folder
        self._prefix = f"rank{rank}-{attempt}"
        self._next = 0
        self._small: list[tuple[int, int, int]] = []  # the latest consecutive small parts: first and last number, and how many cells

    def write(self, table: Any, num_cells: int) -> None:
        """Write a table as the next part, and merge small parts if there are enough."""
        number = self._next
        self._next += 1
        self._put(table, number, number, num_cells)
        self._merge(NUM_MERGED)

    def finish(self) -> None:
        """Merge what is left of small parts: nobody writes more, and a reader opens the parts of a thousand ranks."""
        self._merge(MANY_LEFT)

    def _merge(self, least: int) -> None:
        if len(self._small) < least:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        small = list(self._small)
        paths = [self._path(first, last) for first, last, _ in small]
        with suppress(OSError):  # a full disk: the parts are written
            tables = []
            for path in paths:
                with pq.ParquetFile(path) as part:  # ``read_table`` would import pandas, if installed, in a training step
                    tables.append(part.read())
            merged = pa.concat_tables(tables, promote_options="default").unify_dictionaries().combine_chunks()
            self._put(merged, small[0][0], small[-1][1], sum(num_cells for *_, num_cells in small))
            for path in paths:  # if killed before the last is gone, see `split_merged`
                os.unlink(path)

    def _put(self, table: Any, first: int, last: int, num_cells: int) -> None:
        import pyarrow.parquet as pq

        os.makedirs(self._folder, exist_ok=True)  # it may have been lost
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), KEY: BLANK})
        with replacing(self._path(first, last)) as aside:
            pq.write_table(table, aside, GROUP_ROWS, compression="zstd", use_dictionary=list(REPEATED), write_page_checksum=True)
            seal(aside)
        self._small = [one for one in self._small if one[0] < first] + [(first, last, num_cells)] if num_cells < SMALL_CELLS else []

    def _path(self, first: int, last: int) -> str:
        numbers = f"{first:06d}" if first == last else f"{first:06d}-{last:06d}"
        return os.path.join(self._folder, f"{self._prefix}-{numbers}.parquet")
