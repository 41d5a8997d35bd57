"""Parts that are merged: no row is lost or doubled, whenever the process is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from numscope.runs.folder import find_run
from numscope.runs.query import ask
from numscope.sinks.parquet import ParquetSink
from numscope.sinks.part_files import ABANDONED_S, NUM_MERGED, PartName, split_merged
from tests.sinks.seen import observation
from tests.warm import COLD

pq = pytest.importorskip("pyarrow.parquet")


def run_of(folder: Path, num_parts: int, first: int = 0) -> ParquetSink:
    sink = ParquetSink(folder, 0, {}, flush_s=0.0)
    for step in range(first, first + num_parts):
        extras = {"v_numel": 1.0} if step % 2 else {}
        sink.write([observation(step, f"layer{step % 5}", extras=extras)])
        sink.flush()
    return sink


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "statistics"))


def steps(folder: Path) -> list[int]:
    return [row[0] for row in ask(find_run(folder), "SELECT step FROM stats ORDER BY step").rows]


def test_small_parts_become_one(tmp_path: Path) -> None:
    run_of(tmp_path, NUM_MERGED + 2)
    assert names(tmp_path) == ["rank0-1-000000-000031.parquet", "rank0-1-000032.parquet", "rank0-1-000033.parquet"]
    assert steps(tmp_path) == list(range(NUM_MERGED + 2))
    merged = pq.read_table(tmp_path / "statistics" / "rank0-1-000000-000031.parquet").to_pylist()
    assert [row["layer"] for row in merged] == [f"layer{step % 5}" for step in range(NUM_MERGED)]
    assert [row["v_numel"] for row in merged] == [1.0 if step % 2 else None for step in range(NUM_MERGED)]


def test_merged_parts_are_merged_again_so_that_files_stay_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numscope.sinks.part_files.NUM_MERGED", 4)
    run_of(tmp_path, 4 * 4 + 4 + 1)
    assert names(tmp_path) == ["rank0-1-000000-000018.parquet", "rank0-1-000019.parquet", "rank0-1-000020.parquet"]
    assert steps(tmp_path) == list(range(21))


def test_merging_imports_nothing_in_a_training_step(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from numscope.sinks.part_files import NUM_MERGED
from tests.sinks.test_part_files import run_of
before = set(sys.modules)
run_of(Path(sys.argv[1]), NUM_MERGED)
print({name.partition(".")[0] for name in set(sys.modules) - before} & {"pandas", "numpy", "zoneinfo"}, "pandas" in before)
"""
    done = subprocess.run([COLD, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "set() False\n"
    assert len(names(tmp_path)) == 1


def test_large_parts_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numscope.sinks.part_files.SMALL_CELLS", 10)
    run_of(tmp_path, NUM_MERGED)
    assert len(names(tmp_path)) == NUM_MERGED


@pytest.mark.parametrize("num_left", [1, 5, NUM_MERGED])
def test_killed_while_the_merged_ones_are_removed_no_row_is_doubled(tmp_path: Path, num_left: int) -> None:
    run_of(tmp_path, NUM_MERGED - 1)
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "statistics", kept)
    run_of(tmp_path / "other", NUM_MERGED)
    last = tmp_path / "other" / "statistics" / "rank0-1-000000-000031.parquet"
    shutil.copy(last, tmp_path / "statistics")
    for name in sorted(os.listdir(kept))[: NUM_MERGED - num_left]:
        (tmp_path / "statistics" / name).unlink(missing_ok=True)
    assert steps(tmp_path) == list(range(NUM_MERGED))
    run_of(tmp_path, 1, first=NUM_MERGED)  # the restarted job removes what is left
    assert names(tmp_path) == ["rank0-1-000000-000031.parquet", "rank0-2-000000.parquet"]
    assert steps(tmp_path) == list(range(NUM_MERGED + 1))


def test_only_old_files_that_were_never_renamed_are_removed(tmp_path: Path) -> None:
    run_of(tmp_path, 1)
    old, new, others = (tmp_path / "statistics" / f".rank{n}.parquet.tmp" for n in ("0-1-000007", "0-1-000008", "10-1-000007"))
    for path in (old, new, others):
        path.write_bytes(b"PAR1")
    for path in (old, others):
        os.utime(path, (time.time() - ABANDONED_S - 1,) * 2)
    ParquetSink(tmp_path, 0, {})
    assert [path.exists() for path in (old, new, others)] == [False, True, True]


def test_run_that_merges_while_it_is_read_is_read_once_more(tmp_path: Path) -> None:
    sink = run_of(tmp_path, NUM_MERGED - 1)
    listed = find_run(tmp_path)
    sink.write([observation(NUM_MERGED - 1)])
    sink.flush()  # what was listed is merged away
    assert len(ask(listed, "SELECT step FROM stats").rows) == NUM_MERGED


def test_parts_are_ordered_and_told_apart_by_rank_and_attempt() -> None:
    listing = [
        "rank10-1-000000.parquet", "rank2-1-000003.parquet", "rank2-1-000000-000002.parquet", "rank2-1-000001.parquet",
        "rank2-2-000001.parquet", "other.parquet", ".rank2-1-000009.parquet.tmp",
    ]  # fmt: skip
    kept, held = split_merged(listing)
    assert [part.name for part in kept] == [listing[2], listing[1], listing[4], listing[0]]
    assert held == [PartName("rank2-1-000001.parquet", 2, 1, 1, 1)]
