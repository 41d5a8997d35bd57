"""The run's folder, read back by pyarrow and pandas."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from numscope.records.observation import COUNTS, EXTREMA, FIELDS, Observation
from numscope.sinks.parquet import ParquetSink
from numscope.sinks.runfolder import RunFolder, without_secrets
from numscope.summary.state import Summary
from tests.sinks.seen import observation, opened
from tests.warm import COLD

pq = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")

FULL = Summary(10, 1, 2, 3, 1, 1, -2.5, 3.0, 1e-40, 3.0, 0.1, 5.5, 12.25, 1.0, 2e300)


def rows(folder: Path) -> list[dict[str, object]]:
    found = pd.read_parquet(folder / "statistics").astype(object)
    return found.where(found.notna(), None).to_dict("records")


def test_row_is_read_back_exactly(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, 3, {})
    before = time.time()
    fields = {name: getattr(FULL, name) for name in FIELDS}
    sink.write([Observation(150, "decoder.0.fc1", "Linear", "wgrad", "bfloat16", 7, 3, 4, 2, fields)])
    sink.close()
    (row,) = rows(tmp_path)
    assert {name: row[name] for name in FIELDS} == fields
    kept = {"step": 150, "layer": "decoder.0.fc1", "cls": "Linear", "tensor": "wgrad", "dtype": "bfloat16", "ord": 7, "rank": 3, "ranks": 4}
    assert {name: row[name] for name in kept} == kept
    assert (row["calls"], row["attempt"]) == (2, 1)
    assert before - 1 <= row["time"].tz_localize("UTC").timestamp() <= time.time() + 1  # type: ignore[attr-defined]


def test_columns_have_their_types(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, 0, {})
    sink.write([observation(extras={"e4m3_num_underflow": 3.0, "exponents": [1.0] * 256})])
    sink.close()
    (part,) = (tmp_path / "statistics").iterdir()
    schema = {field.name: str(field.type) for field in pq.read_schema(part)}
    assert {schema[name] for name in COUNTS} == {"int64"}
    assert {schema[name] for name in FIELDS if name not in COUNTS} == {"double"}
    assert schema["e4m3_num_underflow"] == "double"
    assert schema["exponents"].startswith("list<") and "double" in schema["exponents"]
    assert schema["layer"].startswith("dictionary<values=string")
    assert schema["time"] == "timestamp[ms]"
    assert pq.ParquetFile(part).metadata.row_group(0).column(0).compression == "ZSTD"


def test_extrema_of_nothing_finite_are_null_and_an_overflowed_sum_stays_nan_or_inf(tmp_path: Path) -> None:
    inf, nan = float("inf"), float("nan")
    sink = ParquetSink(tmp_path, 0, {})
    sink.write(
        [observation(summary=Summary(4, 4)), observation(1, summary=Summary(2, min=1.0, max=2.0, dev_square_sum=inf, dev_cube_sum=nan))]
    )
    sink.close()
    (part,) = (tmp_path / "statistics").iterdir()
    first, second = pq.read_table(part).to_pylist()
    assert [first[name] for name in EXTREMA] == [None] * 4
    assert second["dev_square_sum"] == inf
    assert second["dev_cube_sum"] != second["dev_cube_sum"]


def test_extra_columns_are_null_in_rows_that_have_none(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, 0, {})
    counts = [float(i) for i in range(256)]
    sink.write([observation(0, "a"), observation(0, "b", extras={"exponents": counts, "v_numel": 2.0}), observation(0, "c")])
    sink.write([observation(1, "a", extras={"v_numel": 3.0})])
    sink.write_part()
    sink.write([observation(2, "a")])  # a part without any
    sink.close()
    first, second = (pq.read_table(path).to_pylist() for path in sorted((tmp_path / "statistics").iterdir()))
    assert [row["exponents"] for row in first] == [None, counts, None, None]
    assert [row["v_numel"] for row in first] == [None, 2.0, None, 3.0]
    assert [row["v_numel"] for row in second] == [None]
    assert [row["layer"] for row in rows(tmp_path)] == ["a", "b", "c", "a", "a"]


def test_what_others_write_or_what_derives_from_other_rows_is_not_stored(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, 0, {})
    theirs = observation(0, "theirs")._replace(mine=False)
    sink.write([theirs, observation(0, "merged", cls=""), observation(0, "own")])
    sink.close()
    assert [row["layer"] for row in rows(tmp_path)] == ["own"]


def test_part_is_written_when_enough_is_held_or_enough_time_has_passed(tmp_path: Path) -> None:
    by_size = ParquetSink(tmp_path / "a", 0, {}, flush_s=1e9, flush_cells=len(FIELDS) * 10)
    by_time = ParquetSink(tmp_path / "b", 0, {}, flush_s=0.0)
    for step in range(25):
        for sink in (by_size, by_time):
            sink.write([observation(step)])
            sink.flush()
    assert len(list((tmp_path / "a" / "statistics").iterdir())) == 2
    assert len(list((tmp_path / "b" / "statistics").iterdir())) == 25
    by_size.close()
    assert [row["step"] for row in rows(tmp_path / "a")] == list(range(25))


def test_second_run_into_the_folder_adds_an_attempt_and_keeps_the_first(tmp_path: Path) -> None:
    for seed in (1, 2):
        sink = ParquetSink(tmp_path, 0, {"world_size": 4, "config": f"seed {seed}"})
        sink.write([observation(seed)])
        sink.close()
    assert [(row["step"], row["attempt"]) for row in rows(tmp_path)] == [(1, 1), (2, 2)]
    run = json.loads((tmp_path / "run.json").read_text())
    assert [(a["attempt"], a["config"], a["world_size"]) for a in run["attempts"]] == [(1, "seed 1", 4), (2, "seed 2", 4)]


def test_process_of_the_same_rank_at_the_same_time_takes_another_attempt(tmp_path: Path) -> None:
    assert [RunFolder(tmp_path, 0, {}).attempt for _ in range(3)] == [1, 2, 3]
    assert RunFolder(tmp_path, 1, {}).attempt == 1


def test_run_json_says_what_ran(tmp_path: Path) -> None:
    import torch

    sinks = opened(log_dir=tmp_path, text=False, run={"config": "layers: all", "world_size": 2})
    sinks.describe([{"name": "fc1", "cls": "Linear", "weights": ("weight",)}])
    (attempt,) = json.loads((tmp_path / "run.json").read_text())["attempts"]
    assert attempt["config"] == "layers: all"
    assert attempt["versions"]["torch"] == str(torch.__version__)
    assert set(attempt) == {"attempt", "started", "versions", "environment", "command", "config", "world_size"}
    rank = json.loads((tmp_path / "ranks" / "rank0-1.json").read_text())
    assert rank["layers"] == [{"name": "fc1", "cls": "Linear", "weights": ["weight"]}]
    assert rank["pid"] == os.getpid()


def test_other_rank_leaves_run_json_to_rank_0(tmp_path: Path) -> None:
    RunFolder(tmp_path, 5, {"config": "of 5"})  # the only one so far
    RunFolder(tmp_path, 0, {"config": "of 0"})
    RunFolder(tmp_path, 6, {"config": "of 6"})
    assert [a["config"] for a in json.loads((tmp_path / "run.json").read_text())["attempts"]] == ["of 0"]


def test_other_rank_that_saw_no_run_json_does_not_write_over_rank_0s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RunFolder(tmp_path, 0, {"config": "of 0"})
    monkeypatch.setattr(os.path, "exists", lambda path: False)  # it looked a moment earlier
    RunFolder(tmp_path, 1, {"config": "of 1"})
    assert [a["config"] for a in json.loads((tmp_path / "run.json").read_text())["attempts"]] == ["of 0"]
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (["train.py", "--api-key", "sk-1", "--lr", "1"], ["train.py", "--api-key", "[hidden]", "--lr", "1"]),
        (["train.py", "--hf_token=abc", "wandb.key=xyz"], ["train.py", "--hf_token=[hidden]", "wandb.key=[hidden]"]),
        (["train.py", "--keyboard", "de", "--tokens", "5", "--monkey=1"], ["train.py", "--keyboard", "de", "--tokens", "5", "--monkey=1"]),
        (["train.py", "--use-auth-token", "--lr", "1"], ["train.py", "--use-auth-token", "--lr", "1"]),
        ("train.py --password hunter2", "train.py --password [hidden]"),
    ],
)
def test_secrets_of_the_command_line_are_not_kept(command: str | list[str], kept: str | list[str]) -> None:
    assert without_secrets(command) == kept


def test_environment_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "very-secret-indeed")
    ParquetSink(tmp_path, 0, {}).close()
    assert not any("very-secret-indeed" in path.read_text() for path in tmp_path.rglob("*.json"))


def test_forked_child_does_not_write_its_parents_rows(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, 0, {})
    sink.write([observation()])
    sink._owner += 1  # as in the child
    sink.close()
    assert list((tmp_path / "statistics").iterdir()) == []


WRITER = """
import sys
from numscope.sinks.parquet import ParquetSink
from tests.sinks.seen import observation, opened
sink = ParquetSink(sys.argv[1], 0, {}, flush_s=0.0)
for step in range(10**9):
    sink.write([observation(step, f"layer{i}", extras={"exponents": [1.0] * 256}) for i in range(50)])
    sink.flush()
    if step == 0:
        print("ready", flush=True)
"""


def test_killed_at_any_moment_the_folder_reads(tmp_path: Path) -> None:
    moments = random.Random(0)
    for attempt in range(1, 5):
        with subprocess.Popen([COLD, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(moments.random() * 0.2)
            os.kill(process.pid, signal.SIGKILL)
        found = pd.read_parquet(tmp_path / "statistics")
        last = found[found.attempt == attempt]
        assert last.groupby("step").size().eq(50).all()  # whole steps
        assert last.step.nunique() == last.step.max() + 1  # and none left out
        assert found.attempt.max() == attempt
        assert [a["attempt"] for a in json.loads((tmp_path / "run.json").read_text())["attempts"]] == list(range(1, attempt + 1))
