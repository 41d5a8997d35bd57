"""A run's numbers as Parquet files, which pandas, Polars, DuckDB and Spark read directly."""

from __future__ import annotations

import os
import time
import weakref
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, repeat
from typing import Any

from numscope.records.faults import ours, suppress
from numscope.records.observation import COUNTS, EXTREMA, FIELDS, Histogram, Observation
from numscope.sinks.part_files import PartFiles, clear_remains
from numscope.sinks.runfolder import FORMAT, RunFolder
from numscope.version import __version__

SITE = ("layer", "cls", "tensor", "dtype")
WHOLE = ("step", "ord", "ranks", "calls", "time")

FLUSH_S = 30.0
FLUSH_CELLS = 1 << 20  # numbers held at most: 8 MiB
MOST_HELD = 8  # times as many while the disk is full; then they are dropped


_open: weakref.WeakSet[ParquetSink] = weakref.WeakSet()  # this process's
_ended: set[tuple[str, int, int]] = set()  # places of those that were closed


def close_all() -> set[str]:
    """Close what this process has left open: it ends. Returns: the run folders that it has written to."""
    for sink in list(_open):
        with suppress(OSError):
            sink.close()
    return {folder for folder, _, owner in _ended if owner == os.getpid()}


class ParquetSink:
    """``<log_dir>/statistics/rank<r>-<attempt>-<n>.parquet``: one row per site and step, one part per flush; see ``part_files.py``.

    A row has a summary's fields and the extra columns, from which every statistic derives; so do statistics of several layers together,
    which are not stored. A part is written under another name and renamed, so the folder is readable whenever the run is killed, and a
    killed run loses the last ``flush_s`` seconds.

    Raises: OSError, ImportError.
    *Cost:* about a microsecond per row and step; a part of 2^20 numbers takes some tens of milliseconds.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        rank: int,
        run: Mapping[str, Any],
        flush_s: float = FLUSH_S,  # after which a part is written
        flush_cells: int = FLUSH_CELLS,  # numbers after which a part is written earlier
    ) -> None:
        import pyarrow.compute
        import pyarrow.parquet  # noqa: F401  # now rather than in a training step: it takes a fifth of a second

        self._rank = rank
        self._flush_s = flush_s
        self._flush_cells = flush_cells
        self._owner = os.getpid()
        self._not_before = 0.0  # monotonic time before which a failed write is not tried again
        self.place: tuple[str, int, int] = (os.path.realpath(log_dir), rank, self._owner)
        beside = next((sink for sink in _open if sink.place == self.place), None)
        if beside is None:
            self.folder = RunFolder(log_dir, rank, run)
            clear_remains(self.folder.statistics, rank)
            self._parts = PartFiles(self.folder.statistics, rank, self.folder.attempt)
        else:  # two models of one process: a second attempt would replace the first
            self.folder, self._parts = beside.folder, beside._parts
        _open.add(self)
        self._sites: dict[tuple[str, str, str, str], int] = {}
        self._extras: dict[str, _Extra] = {}
        self._clear()

    def describe(self, layers: Sequence[Mapping[str, Any]]) -> None:
        self.folder.describe(layers, id(self))

    def write(self, observations: Sequence[Observation]) -> None:
        milliseconds = int(time.time() * 1000)
        sites, places, whole, fields = self._sites, self._places, self._whole, self._fields
        for seen in observations:
            if not (seen.mine and seen.cls and seen.fields):  # without a class: merged from rows that are stored
                continue
            if seen.extras:
                for name, value in seen.extras.items():
                    extra = self._extras.get(name)
                    if extra is None:
                        extra = self._extras[name] = _Extra(not isinstance(value, int | float))
                    self._held += extra.append(len(places), value)
            places.append(sites.setdefault((seen.layer, seen.cls, seen.tensor, seen.dtype), len(sites)))
            whole.extend((seen.step, seen.order, seen.ranks, seen.calls, milliseconds))
            fields.extend([_ABSENT if x is None else x for x in map(seen.fields.get, FIELDS)])

    def flush(self) -> None:
        """Write a part if one is due."""
        now, held = time.monotonic(), len(self._fields) + self._held
        if now >= self._not_before and (held >= self._flush_cells or now - self._since >= self._flush_s):
            self.write_part()

    def write_part(self) -> None:
        """Write the rows held as one part."""
        if not self._places or os.getpid() != self._owner:  # the parent of a fork writes them
            return
        held = len(self._fields) + self._held
        try:
            self._parts.write(self._table(), held)
        except ours(OSError) as error:  # a full disk: the rows are kept for the next try
            self._not_before = time.monotonic() + self._flush_s
            if held >= MOST_HELD * self._flush_cells:
                self._clear()
                raise OSError(error.errno, f"{error.strerror}; too many rows to keep, they are dropped") from error
            raise
        self._clear()

    def close(self) -> None:
        _open.discard(self)
        self.write_part()
        if os.getpid() == self._owner and all(sink.place != self.place for sink in _open):
            self._parts.finish()
            self.folder.end()
            _ended.add(self.place)

    def _clear(self) -> None:
        self._places = array("i")
        self._whole = array("q")
        self._fields = array("d")
        self._held = 0  # numbers in extra columns
        self._since = time.monotonic()
        for extra in self._extras.values():
            extra.clear()

    def _table(self) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        num_rows = len(self._places)
        columns: dict[str, Any] = {}
        places = _arrow(pa.int32(), self._places)
        for index, name in enumerate(SITE):
            columns[name] = _words([site[index] for site in self._sites]).dictionary_encode().take(places)
        for index, name in enumerate(WHOLE):
            kind = pa.timestamp("ms") if name == "time" else pa.int64()
            columns[name] = _arrow(kind, self._whole[index :: len(WHOLE)])
        for name, value in (("rank", self._rank), ("attempt", self.folder.attempt)):
            columns[name] = _arrow(pa.int64(), array("q", repeat(value, num_rows)))
        for index, name in enumerate(FIELDS):
            column = _arrow(pa.float64(), self._fields[index :: len(FIELDS)])
            if name in COUNTS:
                column = column.cast(pa.int64())
            elif name in EXTREMA:
                column = pc.if_else(pc.is_nan(column), pa.nulls(1, pa.float64())[0], column)
            columns[name] = column
        for name, extra in self._extras.items():
            columns[name] = extra.column(num_rows)
        order = ("step", *SITE, "ord", "rank", "attempt", "ranks", "calls", "time", *FIELDS, *self._extras)
        metadata = {"numscope": __version__, "numscope_format": str(FORMAT)}
        return pa.table({name: columns[name] for name in order}, metadata=metadata)


_ABSENT = float("nan")  # an extremum is never nan


class _Extra:
    """One extra column: the numbers, or lists of numbers, of rows that have it."""

    def __init__(self, is_list: bool) -> None:
        self._is_list = is_list
        self.clear()

    def clear(self) -> None:
        self._places = array("i")  # for each row the number of its value, from 1; 0: none
        self._values = array("d")
        self._ends = array("i", [0])

    def append(self, row: int, value: float | Histogram) -> int:
        """Add a row's value. Returns: how many numbers it has."""
        missing = row - len(self._places)
        if missing > 0:
            self._places.extend(repeat(0, missing))
        before = len(self._values)
        if isinstance(value, int | float):
            self._values.append(value)
        else:
            self._values.extend(value)
        self._ends.append(len(self._values))
        self._places.append(len(self._ends) - 1)
        return len(self._values) - before

    def column(self, num_rows: int) -> Any:
        import pyarrow as pa

        self._places.extend(repeat(0, num_rows - len(self._places)))
        values = _arrow(pa.float64(), self._values)
        if self._is_list:
            values = pa.ListArray.from_arrays(_arrow(pa.int32(), self._ends), values)
        if len(values) == num_rows:
            return values
        return pa.concat_arrays([pa.nulls(1, values.type), values]).take(_arrow(pa.int32(), self._places))


def _words(words: Sequence[str]) -> Any:
    """The words as an Arrow array; ``pyarrow.array`` would import pandas, if installed, in a training step."""
    import pyarrow as pa

    coded = [word.encode("utf-8", "backslashreplace") for word in words]
    ends = array("i", accumulate(map(len, coded), initial=0))
    return pa.StringArray.from_buffers(len(coded), pa.py_buffer(ends), pa.py_buffer(b"".join(coded)))


def _arrow(kind: Any, numbers: array[Any]) -> Any:
    """The numbers as an Arrow array, without a copy."""
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
