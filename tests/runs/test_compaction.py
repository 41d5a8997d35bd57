"""Compacted parts: the same rows, each once, at any moment and wherever a compaction dies; damage is found where it is read."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from numscope.cli.command import numscope as command
from numscope.records.errors import UsageError
from numscope.runs import compaction
from numscope.runs.compaction import compact
from numscope.runs.folder import find_run
from numscope.runs.query import ask
from numscope.sinks import seal
from numscope.sinks.parquet import ParquetSink
from numscope.storage import ranges
from numscope.summary.state import Summary
from tests.effort import examples
from tests.sinks.seen import observation

COLUMNS = "step, layer, tensor, ord, rank, attempt, numel, num_nan, min, abs_max, dev_sum, exponents, v_numel, time"
OF_ALL = f"SELECT {COLUMNS} FROM every_row"
OF_VIEW = "SELECT step, layer, tensor, ord, rank, attempt, numel, abs_max, mean, exponent_histogram, time FROM stats"

Writes = list[tuple[int, list[list[tuple[int, int]]], bool]]  # a start of a rank each: its flushes of (step, layer), and whether it ended

WRITES: st.SearchStrategy[Writes] = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=6), min_size=1, max_size=4),
        st.sampled_from([True, True, True, False]),
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "GROUP_ROWS", 8)
    monkeypatch.setattr(compaction, "PORTION_ROWS", 12)


def written(folder: Path, writes: Writes) -> None:
    """A run of these starts. The first row of each has all the columns that any has."""
    number = float(len(os.listdir(folder / "statistics"))) if (folder / "statistics").exists() else 0.0
    for rank, flushes, ended in writes:
        sink = ParquetSink(folder, rank, {})
        for flush in flushes:
            for step, layer in flush:
                number += 1.0
                extras: dict[str, Any] = {"v_numel": number} if number % 2 else {}
                if number % 3 == 1:
                    extras["exponents"] = [number, 0.0]
                summary = Summary(numel=3, num_nan=int(number % 4 == 0), min=-number, max=number / 3, abs_max=number, dev_sum=number)
                name = ("a'b", 'quo"te\n', "ζ", "layer")[layer]
                sink.write([observation(step, name, order=layer, rank=rank, summary=summary, extras=extras)])
            sink.write_part()
        if ended:
            sink.close()
        else:
            sink.close = lambda: None  # type: ignore[method-assign]  # not even later


def rows(run: Path | str, sql: str = OF_ALL) -> Counter[str]:
    return Counter(map(repr, ask(find_run(run), sql).rows))


def plain_rows(folder: Path) -> Counter[str]:
    """As a program sees them that knows nothing of numscope."""
    files = f"read_parquet('{folder}/statistics/*.parquet', union_by_name = true)"
    return Counter(map(repr, duckdb.connect().execute(f"SELECT {COLUMNS} FROM {files}").fetchall()))


FULL: Writes = [(0, [[(0, 0), (0, 1)]], True)]  # has all columns


@settings(max_examples=examples(6), deadline=None)
@given(first=WRITES, second=st.one_of(st.just([]), WRITES))
def test_any_rows_in_any_parts_are_the_same_once_compacted_and_once_more(first: Writes, second: Writes) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        for writes in (FULL + first, second):
            written(folder, writes)
            before = [rows(folder), rows(folder, OF_VIEW)]
            assert before[0] == plain_rows(folder)
            compact(name)
            assert [rows(folder), rows(folder, OF_VIEW)] == before
            assert plain_rows(folder) == before[0]
            assert not [one for one in os.listdir(folder / "statistics") if one.startswith(".")]
        left = [(int(n[4]), int(n[6])) for n in os.listdir(folder / "statistics") if n.startswith("rank")]
        assert sum(one not in compaction._writing(name) for one in left) < 2


class Killed(BaseException):
    """The process is dead: from some operation on nothing happens any more."""


def dying(patch: pytest.MonkeyPatch, at: int) -> list[int]:
    """Let the process die in front of its file operation ``at``. Returns: in a list, how many there were."""
    count = [0]

    def guarded(real: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            count[0] += 1
            if count[0] > at:
                raise Killed
            return real(*args, **named)

        return call

    for name in ("rename", "unlink", "fsync", "rmdir"):
        patch.setattr(os, name, guarded(getattr(os, name)))
    patch.setattr(compaction, "seal", guarded(compaction.seal))
    patch.setattr(compaction.shutil, "rmtree", guarded(shutil.rmtree))
    return count


def test_killed_at_any_operation_each_row_is_there_once_also_for_a_storage_and_the_next_one_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tmp_path / "start"
    written(start, [*FULL, (1, [[(0, 0), (1, 1)], [(2, 2)]], True)])
    compact(str(start))  # the next one replaces a compacted set, too
    written(start, [(2, [[(4, 0)], [(5, 1)]], True), (3, [[(4, 1), (7, 1)]], True)])
    before, view = rows(start), rows(start, OF_VIEW)
    at, done = 0, False
    while not done:
        folder = tmp_path / str(at)
        shutil.copytree(start, folder)
        with monkeypatch.context() as patch:
            dying(patch, at)
            try:
                compact(str(folder))
                done = True
            except Killed:
                pass
        assert rows(folder) == rows(f"file://{folder}") == before, at
        assert rows(folder, OF_VIEW) == view
        compact(str(folder))
        assert rows(folder) == plain_rows(folder) == before, at
        assert [name for name in os.listdir(folder) if name.startswith(".")] == [".compacting"]
        assert all(name.startswith("compacted-") for name in os.listdir(folder / "statistics"))
        at += 1
    assert at > 10


def compacted_run(folder: Path) -> list[Path]:
    written(folder, [*FULL, *((rank, [[(step, layer) for step in range(10) for layer in range(4)]], True) for rank in range(4))])
    compact(str(folder))
    return sorted((folder / "statistics").iterdir())


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compacted") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "GROUP_ROWS", 8)
        compacted_run(folder)
    return folder


@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_no_flipped_bit_is_read_as_a_number(sealed: Path, data: st.DataObject) -> None:
    part = sorted((sealed / "statistics").iterdir())[0]
    whole, before = part.read_bytes(), rows(sealed)
    place, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    try:
        part.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        found = rows(sealed)
        assert found == before or (found < before and part.name in find_run(sealed).broken)
        assert part.name in find_run(sealed, whole=True).broken or found == before
    finally:
        part.write_bytes(whole)


def test_damaged_chunk_is_left_out_and_named_and_only_where_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(seal, "CHUNK_BYTES", 64)
    monkeypatch.setattr(ranges, "SMALLEST", 1)
    part = compacted_run(tmp_path)[0]
    data = bytearray(part.read_bytes())
    data[int((seal.text_in(data, seal.CHUNKS) or b"").partition(b":")[0]) - 1] ^= 1  # the last of the last column
    part.write_bytes(data)
    assert ask(find_run(tmp_path), "SELECT min(step), max(step) FROM stats").rows == [(0, 9)] and find_run(tmp_path).problems == ()
    assert ask(find_run(tmp_path), f"{OF_ALL} ORDER BY step").rows[0][0] > 0
    told = f"statistics/{part.name} is damaged or incomplete, and is left out."
    assert [record.getMessage() for record in caplog.records] == [f"numscope: {told}"] and find_run(tmp_path).problems == (told,)


def test_lost_part_of_a_set_is_named_and_the_others_stay(tmp_path: Path) -> None:
    parts = compacted_run(tmp_path)
    parts[1].unlink()
    run = find_run(tmp_path)
    assert run.problems == (f"statistics/{parts[1].name} is damaged or incomplete, and is left out.",)
    assert len(run.parts) == len(parts) - 1 and run.superseded == ()


def test_ranks_that_may_still_write_and_damaged_parts_are_left_as_they_are(tmp_path: Path) -> None:
    written(tmp_path, [*FULL, (1, [[(0, 0)], [(1, 0)]], True), (2, [[(0, 0)], [(1, 0)]], False)])
    damaged = tmp_path / "statistics" / "rank1-1-000001.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    before = rows(tmp_path)
    assert "2 parts of ranks that may still write stay as they are." in compact(str(tmp_path))
    kept = sorted(name for name in os.listdir(tmp_path / "statistics") if name.startswith("rank"))
    assert kept == ["rank1-1-000001.parquet", "rank2-1-000000.parquet", "rank2-1-000001.parquet"]
    assert rows(tmp_path) == before and len(find_run(tmp_path).problems) == 1


def test_rank_that_noted_no_end_may_write_for_an_hour(tmp_path: Path) -> None:
    written(tmp_path, [(0, [[(0, 0)], [(1, 0)]], False), (1, [[(0, 0)]], True)])
    assert compaction._writing(str(tmp_path)) == {(0, 1)}
    for path in (tmp_path / "statistics").iterdir():
        os.utime(path, (1.0, 1.0))
    assert compaction._writing(str(tmp_path)) == set()


def test_foreign_names_in_a_footer_reach_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(b"PAR1")
    run = tmp_path / "run"
    real = compaction.zlib.compress
    monkeypatch.setattr(compaction.zlib, "compress", lambda data: real(data + f"\n../../outside.parquet\n{outside}".encode()))
    compacted_run(run)
    before = rows(run)
    written(run, [(5, [[(0, 0)], [(1, 0)]], True)])
    assert before < rows(run)
    compact(str(run))
    assert outside.exists() and before < rows(run)


def test_one_at_a_time_and_only_where_a_folder_is(tmp_path: Path) -> None:
    written(tmp_path, FULL)
    with compaction._alone(str(tmp_path)), pytest.raises(UsageError, match="is being compacted"):
        compact(str(tmp_path))
    with pytest.raises(UsageError, match="expected a folder of this machine"):
        compact("s3://bucket/run")


def test_full_disk_leaves_the_run_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, [*FULL, (1, [[(0, 0)], [(1, 0)]], True)])
    before = sorted(os.listdir(tmp_path / "statistics"))

    def full(path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compaction, "seal", full)
    with pytest.raises(UsageError, match=r"is as it was: .*No space left"):
        compact(str(tmp_path))
    assert sorted(os.listdir(tmp_path / "statistics")) == before


def test_command_says_what_it_did(tmp_path: Path) -> None:
    written(tmp_path, [*FULL, (1, [[(0, 0)], [(1, 0)]], True)])
    done = CliRunner().invoke(command, ["stats", str(tmp_path), "compact"])
    assert done.exit_code == 0 and "numscope: 3 parts of 0.0 MiB became 1 of 0.0 MiB.\n" in done.output
    assert "There is nothing to compact." in CliRunner().invoke(command, ["stats", str(tmp_path), "compact"]).output
    with pytest.raises(UsageError, match="compact: given with a question"):
        CliRunner().invoke(command, ["stats", str(tmp_path), "compact", "--json"], catch_exceptions=False)


@pytest.mark.parametrize("num_ended", [7, 8])
def test_last_rank_to_end_compacts(tmp_path: Path, num_ended: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, [(rank, [[(0, 0), (1, 1)]], rank < num_ended) for rank in range(8)])
    before = rows(tmp_path)
    assert not compaction._is_due(str(tmp_path)), "of 8 parts there are too few"
    monkeypatch.setattr(compaction, "FEWEST_PARTS", 8)
    monkeypatch.setattr(compaction, "WAIT_S", 120.0)  # on a busy machine
    assert compaction._is_due(str(tmp_path)) == (num_ended == 8)
    compaction.compact_ended([str(tmp_path), str(tmp_path / "gone")])
    assert rows(tmp_path) == before
    assert len(os.listdir(tmp_path / "statistics")) == (1 if num_ended == 8 else 8)
