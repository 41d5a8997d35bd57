"""The Parquet files of one rank's attempt: replaced whole, and merged if small, so that a run of a month has few files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from numscope.records.faults import ours, suppress
from numscope.records.files import replacing
from numscope.sinks.seal import BLANK, KEY, seal

SMALL_CELLS = 1 << 17  # a part with fewer numbers is merged with others
NUM_MERGED = 32  # consecutive small parts become one
MANY_LEFT = 8  # small parts, which are merged as the writer ends
GROUP_ROWS = 1 << 14  # of one row group: by its steps' extrema a reader passes over it, which takes 6 KB more in the footer
ABANDONED_S = 3600.0  # age from which a temporary file belongs to a killed process

# Columns that a dictionary makes small; the other numbers rarely repeat.
REPEATED = ("layer", "cls", "tensor", "dtype", "step", "ord", "rank", "attempt", "ranks", "calls", "time")

_NAME = re.compile(r"rank(\d+)-(\d+)-(\d+)(?:-(\d+))?\.parquet")


@dataclass(frozen=True, slots=True)
class PartName:
    """The parts of a file name: rank, attempt, and the first and last flush in the file."""

    name: str
    rank: int
    attempt: int
    first: int
    last: int

    @classmethod
    def parse(cls, name: str) -> PartName | None:
        """None if the name is not a part's."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(name, int(match[1]), int(match[2]), int(match[3]), int(match[4] or match[3]))


def split_merged(names: Iterable[str]) -> tuple[list[PartName], list[PartName]]:
    """The parts in the order of writing, and separately those whose rows a merged part already contains.

    The latter exist only if a process was killed between writing a merged part and removing its sources.
    """
    found = sorted(
        (part for name in names if (part := PartName.parse(name))), key=lambda part: (part.rank, part.attempt, part.first, -part.last)
    )
    kept: list[PartName] = []
    held: list[PartName] = []
    for part in found:
        before = kept[-1] if kept else None
        is_held = before is not None and (before.rank, before.attempt) == (part.rank, part.attempt) and part.last <= before.last
        (held if is_held else kept).append(part)
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


@dataclass(frozen=True, slots=True)
class _Small:
    """A small part; ``level`` counts how often it has been merged."""

    level: int
    first: int
    last: int
    num_cells: int


class Parts:
    """Writes parts ``rank<r>-<attempt>-<n>.parquet``; merged parts are named by their first and last number.

    Args:
        folder: of the parts.
        rank, attempt: the rank, and which of its attempts.

    *Cost:* a part of 2^20 numbers takes some 40 ms; merging ``NUM_MERGED`` small parts reads and writes at most 2^22 numbers.
    """

    def __init__(self, folder: str, rank: int, attempt: int) -> None:
        self._folder = folder
        self._prefix = f"rank{rank}-{attempt}"
        self._next = 0
        self._small: list[_Small] = []  # the latest consecutive small parts

    def write(self, table: Any, num_cells: int) -> None:
        """Write a table as the next part, and merge small parts if there are enough."""
        number = self._next
        self._next += 1
        self._put(table, number, number)
        self._note(_Small(0, number, number, num_cells))
        while len(self._small) >= NUM_MERGED and self._small[-NUM_MERGED].level == self._small[-1].level:
            try:
                self._merge(self._small[-NUM_MERGED:])
            except ours(OSError):  # a full disk: the part itself is written
                break

    def finish(self) -> None:
        """Merge what is left of small parts: nobody writes more, and a thousand ranks' parts are opened by whoever reads."""
        if len(self._small) >= MANY_LEFT:
            with suppress(OSError):  # a full disk: the parts are written
                self._merge(list(self._small))

    def _note(self, part: _Small) -> None:
        if part.num_cells < SMALL_CELLS:
            self._small.append(part)
        else:
            self._small.clear()

    def _merge(self, chosen: list[_Small]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        paths = [self._path(part.first, part.last) for part in chosen]
        tables = []
        for path in paths:
            with pq.ParquetFile(path) as part:  # ``read_table`` would import pandas, if installed, in a training step
                tables.append(part.read())
        merged = pa.concat_tables(tables, promote_options="default")
        first, last = chosen[0].first, chosen[-1].last
        self._put(merged.unify_dictionaries().combine_chunks(), first, last)
        for path in paths:  # if killed before the last is gone, see `split_merged`
            os.unlink(path)
        del self._small[-len(chosen) :]
        self._note(_Small(chosen[0].level + 1, first, last, sum(part.num_cells for part in chosen)))

    def _put(self, table: Any, first: int, last: int) -> None:
        import pyarrow.parquet as pq

        os.makedirs(self._folder, exist_ok=True)  # it may have been lost
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), KEY: BLANK})
        with replacing(self._path(first, last)) as aside:
            pq.write_table(table, aside, GROUP_ROWS, compression="zstd", use_dictionary=list(REPEATED), write_page_checksum=True)
            seal(aside)

    def _path(self, first: int, last: int) -> str:
        numbers = f"{first:06d}" if first == last else f"{first:06d}-{last:06d}"
        return os.path.join(self._folder, f"{self._prefix}-{numbers}.parquet")
