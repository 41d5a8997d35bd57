"""Compacts a run: many parts, of one rank each, become a few of all ranks that are sorted, so that a question reads little of them."""

from __future__ import annotations

import base64
import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from numscope.records.attempt import ENDED, attempts
from numscope.records.errors import UsageError
from numscope.records.faults import suppress
from numscope.records.parent import die_with
from numscope.records.words import count
from numscope.report.page import python_of_ours
from numscope.runs.folder import HOLDS, Run, find_run
from numscope.runs.query import EVERY, reading, strings
from numscope.runs.sources import source_of
from numscope.sinks.part_files import ABANDONED_S, ALL_RANKS, REPEATED, PartName
from numscope.sinks.runfolder import FORMAT, STATISTICS
from numscope.sinks.seal import BLANK, CHUNKS, KEY, Chunks, seal
from numscope.storage.address import is_address
from numscope.version import __version__

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

GROUP_ROWS = 1 << 16  # in a row group, which readers skip by its steps and layers
PORTION_ROWS = 1 << 24  # read at once, some 4 GB: each row group of a part has many steps
MEMORY = "4GB"  # that DuckDB takes; beyond it spills to a folder in the run's
ORDER = "layer, tensor, step, rank, attempt, ord"
FEWEST_PARTS, MOST_PARTS, MOST_BYTES = 64, 20_000, 256 << 20  # of a run that is compacted as it ends: fewer open in no time
WAIT_S = 10.0  # for which its last rank waits; what is not done by then is left
_END_S = 2.0  # to put the run back as it was
_LOCK, _ASIDE = ".compacting", ".compacted-"


def compact_ended(folders: Iterable[str]) -> None:
    """Compact the runs that this process has written to, if it is the last of several ranks to end. Never raises."""
    for folder in folders:
        with suppress(Exception):  # the run is over, and whole as it is
            if _is_due(folder):
                words, quiet = python_of_ours("numscope.runs.compaction", folder), subprocess.DEVNULL
                process = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
                try:
                    process.wait(WAIT_S)
                finally:
                    process.terminate()  # nothing of ours outlives the run
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_END_S)
                    process.kill()


def _is_due(folder: str) -> bool:
    """Whether all ranks have ended, and there are enough parts, and not too many."""
    ranks, place = attempts(folder), os.path.join(folder, STATISTICS)
    if len(ranks) < 2 or not all(_has_ended(files[max(files)]) for files in ranks.values()):
        return False
    sizes = [os.path.getsize(os.path.join(place, name)) for name in os.listdir(place) if name.startswith("rank")]
    return FEWEST_PARTS <= len(sizes) <= MOST_PARTS and sum(sizes) <= MOST_BYTES


def _has_ended(attempt: str) -> bool:
    return os.path.exists(attempt.removesuffix(".json") + ENDED)


def main(folder: str) -> None:
    """Compact a run's folder in a process of its own. Where it is told to end before, the run is as it was."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
    die_with(os.getppid(), signal.SIGTERM)
    compact(folder)


def compact(given: str) -> str:
    """Compact a run's parts. Those of ranks that may still write, and damaged ones, are left as they are.

    A part holds some steps of all sites, site after site; the number of steps is such that one step and one site are in equally many row
    groups. The new parts count as soon as the last of them has its name, and those that they were made of are removed then.

    Returns: a sentence about what was done.
    Raises: UsageError where there is no run, or it is not in a folder of this machine.
    *Cost:* some minutes for 10^8 rows, as much room on the disk as the parts take, and ``MEMORY``.
    """
    if is_address(given):
        raise UsageError(f"compact: got {source_of(given).path!r}, expected a folder of this machine: parts are written anew.")
    with _alone(find_run(given, whole=True).path) as path:
        run = find_run(given, whole=True)
        _clear(run)
        busy = _writing(path)
        chosen = [part for part in run.parts if (part.rank, part.attempt) not in busy]
        left = f" {count(len(run.parts) - len(chosen), 'part')} of ranks that may still write stay as they are." if busy else ""
        if sum(part.rank != ALL_RANKS for part in chosen) < 2:
            return f"There is nothing to compact.{left}"
        try:
            names = _Compaction(replace(run, parts=tuple(chosen))).run()
        except (OSError, ValueError) as error:  # a full disk; columns that Arrow can't write
            raise UsageError(f"compact: {given!r} could not be compacted, and is as it was: {error}.") from None
        sizes = sum(run.listed[part.name][1] for part in chosen), sum(os.path.getsize(name) for name in names)
        before, after = (f"{size / 2**20:,.1f} MiB" for size in sizes)
        return f"{count(len(chosen), 'part')} of {before} became {len(names):,} of {after}.{left}"


@dataclass(slots=True)
class _Compaction:
    """The new parts of a run's chosen parts."""

    source: Run

    def run(self) -> list[str]:
        """The paths of the new parts, which count now. Raises: OSError, UsageError; the run is as it was then."""
        spans, steps = reading(self.source, self._spans, self._narrowed, raw_only=True)
        num_rows = sum(rows for *_, rows in spans.values())
        if not num_rows:
            raise OSError("it has no rows")
        made, attempt = os.urandom(8).hex(), max(part.attempt for part in self.source.parts)
        blocks = _blocks(steps)
        folder = os.path.join(self.source.path, STATISTICS)
        asides = [os.path.join(folder, f"{_ASIDE}{made}-{i}.tmp") for i in range(len(blocks))]
        paths = [os.path.join(folder, PartName.compacted(made, attempt, i + 1, len(blocks))) for i in range(len(blocks))]
        try:
            written = 0
            with tempfile.TemporaryDirectory(prefix=_ASIDE, dir=self.source.path) as spill:
                config = {"raw_only": True, "memory_limit": MEMORY, "temp_directory": spill}
                num = max(1, PORTION_ROWS * len(blocks) // num_rows)
                for places in (range(len(blocks))[at : at + num] for at in range(0, len(blocks), num)):
                    first, last = blocks[places[0]][0], blocks[places[-1]][-1]
                    within = {name for name, (start, end, _) in spans.items() if start <= last and end >= first}
                    jobs = {asides[i]: blocks[i] for i in places}
                    written += reading(self.source, lambda c, j=jobs: self._write(c, j), lambda r, w=within: self._narrowed(r, w), **config)  # type: ignore[misc]
            if written != num_rows:
                raise OSError(f"{written:,} rows were written of {num_rows:,}")
            for aside, path in zip(asides, paths, strict=True):
                os.rename(aside, path)
            _on_disk(folder)
        except BaseException:
            for path in (*paths, *asides):
                with contextlib.suppress(OSError):
                    os.unlink(path)
            raise
        for part in self.source.parts:
            with contextlib.suppress(OSError):  # whatever is left is known to be held, and the next time it is removed
                os.unlink(os.path.join(folder, part.name))
        return paths

    def _narrowed(self, run: Run, within: set[str] | None = None) -> Run:
        """A run that is listed, with the chosen parts alone, or some of them. Raises: OSError where one is gone."""
        there = {part.name for part in run.parts}
        if any(part.name not in there for part in self.source.parts):
            raise OSError("its parts have changed meanwhile")
        return replace(run, parts=tuple(part for part in self.source.parts if within is None or part.name in within))

    def _spans(self, connection: DuckDBPyConnection) -> tuple[dict[str, tuple[int, int, int]], dict[int, int]]:
        """Of each part its first and last step and its number of rows; of each step the number of rows."""
        files = strings(map(glob.escape, self.source.paths))
        rows = connection.execute(f"""
            SELECT file_name, min(CAST(stats_min_value AS BIGINT)), max(CAST(stats_max_value AS BIGINT)), sum(row_group_num_rows)::BIGINT
            FROM parquet_metadata([{files}]) WHERE path_in_schema = 'step' GROUP BY 1
        """).fetchall()
        steps = connection.execute(f"SELECT step, count(*) FROM {EVERY} GROUP BY 1 ORDER BY 1").fetchall()
        return {os.path.basename(name): (first, last, num) for name, first, last, num in rows}, dict(steps)

    def _write(self, connection: DuckDBPyConnection, jobs: dict[str, Sequence[int]]) -> int:
        """Write files of these steps each. Returns: the number of rows."""
        steps = [step for block in jobs.values() for step in block]
        connection.execute(f"CREATE TEMP TABLE portion AS SELECT * FROM {EVERY} WHERE step BETWEEN {steps[0]} AND {steps[-1]}")
        return sum(self._write_part(connection, path, block) for path, block in jobs.items())

    def _write_part(self, connection: DuckDBPyConnection, path: str, steps: Sequence[int]) -> int:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = connection.sql(f"SELECT * FROM portion WHERE step BETWEEN {steps[0]} AND {steps[-1]} ORDER BY {ORDER}")
        reader = rows.to_arrow_reader(GROUP_ROWS)
        fields = [field.with_type(pa.timestamp("ms")) if pa.types.is_timestamp(field.type) else field for field in reader.schema]
        schema, num_rows = pa.schema(fields), 0
        with pa.OSFile(path, "wb") as file:
            options = {"compression": "zstd", "use_dictionary": list(REPEATED), "write_page_checksum": True}
            with pq.ParquetWriter(file, schema, **options) as writer:
                for batch in reader:
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema), GROUP_ROWS)
                    num_rows += len(batch)
                held = zlib.compress("\n".join(part.name for part in self.source.parts).encode())
                facts = {"numscope": __version__, "numscope_format": str(FORMAT), HOLDS: base64.b64encode(held)}
                writer.add_key_value_metadata({**facts, CHUNKS: Chunks.made(path), KEY: BLANK})
        seal(path)
        _on_disk(path)
        return num_rows


def _blocks(steps: dict[int, int]) -> list[list[int]]:
    """Recorded steps in groups. Of s steps in groups of n, with r rows in all, one site is in s / n parts, one step in r n / s / GROUP_ROWS
    row groups: n makes these equal.
    """
    every = list(steps)
    num = max(1, round(len(every) * (GROUP_ROWS / max(1, sum(steps.values()))) ** 0.5))
    return [every[at : at + num] for at in range(0, len(every), num)]


def _on_disk(path: str) -> None:
    """Wait until a file or folder is on the disk: what it replaces is removed next."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _alone(path: str) -> Iterator[str]:
    """Keeps other compactions of a run out. Raises: UsageError where one is at work."""
    import fcntl

    try:
        handle = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise UsageError(f"compact: {path!r} can't be written to: {error}.") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"compact: {path!r} is being compacted, or its file system has no locks: {error}.") from None
        yield path
    finally:
        os.close(handle)


def _clear(run: Run) -> None:
    """Remove the remains of compactions that were killed, and parts whose rows a compacted one has, unless something is damaged."""
    folder = os.path.join(run.path, STATISTICS)
    remains = [] if run.broken else [os.path.join(folder, name) for name in run.superseded]
    for place in (run.path, folder):
        remains += [os.path.join(place, name) for name in os.listdir(place) if name.startswith(_ASIDE)]
    for path in remains:
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def _writing(path: str) -> set[tuple[int, int]]:
    """Ranks and attempts that may still write: they have not noted their end, and wrote within the last hour."""
    folder = os.path.join(path, STATISTICS)
    wrote: dict[tuple[int, int], float] = {}
    for part in filter(None, map(PartName.parse, os.listdir(folder))):
        written = os.stat(os.path.join(folder, part.name)).st_mtime
        wrote[part.rank, part.attempt] = max(written, wrote.get((part.rank, part.attempt), 0.0))
    files = attempts(path)
    lately = {key for key, written in wrote.items() if key[0] != ALL_RANKS and time.time() - written < ABANDONED_S}
    return {(rank, number) for rank, number in lately if not _has_ended(files.get(rank, {}).get(number, ""))}
