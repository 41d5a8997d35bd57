"""Runs in another storage are read by byte ranges: what a question does not need is not sent."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import numscope
from numscope.page.recorded import read_recorded, read_statistics
from numscope.records.errors import UsageError
from numscope.records.observation import FIELDS, Observation
from numscope.runs.comparison import compare
from numscope.runs.folder import find_run
from numscope.runs.query import ask
from numscope.sinks.parquet import ParquetSink
from tests.storage.served import BUCKET, Request, Store
from tests.storage.served import numscope as command

LAYERS, STEPS, PART = 400, 60, 10


@pytest.fixture
def run(store: Store, tmp_path: Path) -> Path:
    """A run of six parts, here and in the store."""
    import numpy as np

    made = np.random.default_rng(0)
    sink = ParquetSink(tmp_path / "a", 0, {})
    for step in range(STEPS):
        values = [[0] * 6 + row for row in made.random((LAYERS, len(FIELDS) - 6)).tolist()]  # counts come first
        sink.write([
            Observation(step, f"layers.{i}", "Linear", "output", "float32", i, 0, 1, 1, dict(zip(FIELDS, row, strict=True)) | {"numel": 64})
            for i, row in enumerate(values)
        ])  # fmt: skip
        if step % PART == PART - 1:
            sink.write_part()
    sink.close()
    store.fs.put(str(tmp_path / "a"), f"{BUCKET}/a", recursive=True)
    store.requests.clear()
    return tmp_path / "a"


def parts(store: Store) -> list[Request]:
    """What was asked of the statistics since."""
    found = [one for one in store.requests if one.method == "GET" and ".parquet" in one.path]
    store.requests.clear()
    return found


def test_a_step_is_read_from_the_one_part_that_has_it(store: Store, run: Path) -> None:
    whole = sum(path.stat().st_size for path in (run / "statistics").iterdir())
    sql = "SELECT layer, abs_max FROM stats WHERE step = 33 ORDER BY ord"
    assert ask(find_run(store.address("a")), sql) == ask(find_run(run), sql)
    asked = parts(store)
    ends = [one for one in asked if one.size <= 32 << 10]
    beyond = [one for one in asked if one.size > 32 << 10]
    assert len(ends) >= STEPS // PART
    assert {one.path for one in beyond} <= {"/runs/a/statistics/rank0-1-000003.parquet"}
    assert sum(one.size for one in asked) < whole / 4


def test_a_column_is_read_without_the_others(store: Store, run: Path) -> None:
    whole = sum(path.stat().st_size for path in (run / "statistics").iterdir())
    sql = "SELECT step, max(abs_max) FROM stats GROUP BY step ORDER BY step"
    assert ask(find_run(store.address("a")), sql) == ask(find_run(run), sql)
    assert sum(one.size for one in parts(store)) < whole / 2


def test_looking_for_a_run_reads_none_of_its_statistics(store: Store, run: Path) -> None:
    assert len(find_run(store.address("a")).parts) == STEPS // PART
    assert parts(store) == []


def test_page_and_diff_and_load_are_those_of_the_folder(store: Store, run: Path) -> None:
    there, here = (read_statistics(read_recorded(folder))[0] for folder in (store.address("a"), str(run)))
    assert there is not None and here is not None
    assert repr(there.matrices) == repr(here.matrices)
    assert compare(store.address("a"), str(run)).first_unequal is None
    assert numscope.load(store.address("a")).equals(numscope.load(run))


def test_the_commands_take_an_address(store: Store, run: Path, tmp_path: Path) -> None:
    for words in (
        ["stats", store.address("a"), "--by", "all", "--json"],
        ["top", store.address("a")],
        ["diff", store.address("a"), str(run)],
        ["report", store.address("a"), "--summary"],
    ):
        ended = command(store, *words, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / "a-summary.json").read_text())["run"] == "a"


def test_the_live_page_copies_new_parts_alone(store: Store, run: Path, tmp_path: Path) -> None:
    from numscope.runs.sources import source_of
    from numscope.view.live import LiveRun

    live = LiveRun("a", "a", source_of(store.address("a")))
    live._see()
    assert live.seen.state == "shown"
    first = parts(store)
    name = "rank0-1-000005.parquet"
    shutil.copy(run / "statistics" / name, tmp_path / "other.parquet")
    store.fs.put(str(tmp_path / "other.parquet"), f"{BUCKET}/a/statistics/rank1-1-000000.parquet")
    store.requests.clear()
    live._see()
    assert {one.path for one in parts(store)} == {"/runs/a/statistics/rank1-1-000000.parquet"}
    assert len(first) == 6, "and each of the others once"


@pytest.mark.parametrize(("name", "told"), [("b", "There is nothing of that name"), ("empty", "has written no statistics yet")])
def test_what_is_no_run_is_said(store: Store, name: str, told: str) -> None:
    store.fs.pipe(f"{BUCKET}/empty/run.json", b"{}")
    with pytest.raises(UsageError, match=told):
        find_run(store.address(name))


def test_a_storage_that_is_away_is_said(store: Store, run: Path) -> None:
    found = find_run(store.address("a"))
    store.stop()
    with pytest.raises(UsageError, match="could not be read"):
        ask(found, "SELECT 1 FROM stats")
    with pytest.raises(UsageError, match="could not be reached"):
        find_run(store.address("a"))
    store.start()


def test_a_folder_of_any_name_is_read(store: Store, run: Path) -> None:
    name = 'it\'s ü[1]*{a,b} "x"'
    store.fs.put(str(run), f"{BUCKET}/{name}", recursive=True)
    assert ask(find_run(store.address(name)), "SELECT count(*) FROM stats").rows == [(LAYERS * STEPS,)]


def test_a_part_that_is_listed_and_not_there_is_said(store: Store, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from numscope.storage.ranges import RangeFiles

    def gone(self: RangeFiles, wanted: object) -> None:
        raise FileNotFoundError("rank0-1-000003.parquet")

    monkeypatch.setattr(RangeFiles, "begin", gone)
    with pytest.raises(UsageError, match=r"could not be read: .*rank0-1-000003"):
        ask(find_run(store.address("a")), "SELECT 1 FROM stats")
