"""Weights & Biases, offline, read back from the file that it would sync."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import numscope
from numscope.sinks.wandb import WandbSink
from tests.late import late
from tests.sinks.seen import ALERT, ALERT_LINE, observation, opened

wandb = late("wandb")

BLOCK = 32768


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DISABLE_GIT": "true"}.items():
        monkeypatch.setenv(name, value)
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    yield
    if wandb.run is not None:
        wandb.run.finish()


def records(path: Path) -> Iterator[bytes]:
    """The records of a run's file: LevelDB's log format after seven bytes of header. The library reads it with a binary of its own."""
    data, place, parts = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if BLOCK - place % BLOCK < 7:  # no header begins in a block's last bytes
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of the one run under a folder, once its file is whole."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.rglob("run-*.wandb")
    for _ in range(500):
        found = [Record.FromString(record) for record in records(path)]
        if found and found[-1].WhichOneof("record_type") == "exit":
            break
        time.sleep(0.02)
    return [
        {key: value for key, value in values_of(record.history.item) if not key.startswith("_") or key == "_step"}
        for record in found
        if record.WhichOneof("record_type") == "history"
    ]


def values_of(items: Any) -> Iterator[tuple[str, Any]]:
    for item in items:
        yield item.key or ":".join(item.nested_key), json.loads(item.value_json)


def test_own_run_is_begun_with_the_first_statistics_and_ended(tmp_path: Path) -> None:
    sink = opened(log_dir=tmp_path, text=False, loggers=["wandb"])
    assert wandb.run is None
    for step in (0, 100):
        sink.write([observation(step, max=step + 0.5, mean=None), observation(step, "fc2", "wgrad", num_nan=2)])
    sink.close()
    assert wandb.run is None
    assert rows(tmp_path) == [
        {"activation.max/fc1": 0.5, "wgrad.num_nan/fc2": 2, "numscope/step": 0, "_step": 0},
        {"activation.max/fc1": 100.5, "wgrad.num_nan/fc2": 2, "numscope/step": 100, "_step": 1},
    ]


def test_statistics_join_the_rows_of_the_scripts_run_and_do_not_end_them(tmp_path: Path) -> None:
    run = wandb.init(dir=tmp_path)
    sink = opened(loggers=["wandb"])
    for epoch in (0, 1, 2):  # the script numbers its rows itself; were they ended for it, its later rows would be refused
        sink.write([observation(10 * epoch, max=float(epoch))])
        run.log({"loss": epoch / 2}, step=epoch)
    sink.close()
    run.finish()
    assert [(row["_step"], row["loss"], row["numscope/step"], row["activation.max/fc1"]) for row in rows(tmp_path)] == [
        (0, 0.0, 0, 0.0),
        (1, 0.5, 10, 1.0),
        (2, 1.0, 20, 2.0),
    ]


def test_statistics_of_a_script_that_logs_nothing_are_all_kept(tmp_path: Path) -> None:
    run = wandb.init(dir=tmp_path)
    sink = opened(loggers=["wandb"])
    for step in range(4):
        sink.write([observation(step, max=float(step))])
    sink.close()
    run.finish()
    assert [row["activation.max/fc1"] for row in rows(tmp_path)] == [0.0, 1.0, 2.0, 3.0]


def test_histogram_is_over_exponents(tmp_path: Path) -> None:
    counts = [0.0] * 256
    counts[115] = 34.0
    run = wandb.init(dir=tmp_path)
    sink = WandbSink(run)
    sink.write([observation(0, exponent_histogram=counts)])
    sink.close()
    run.finish()
    (row,) = rows(tmp_path)
    name = "activation.exponent_histogram/fc1"
    assert row[f"{name}:_type"] == "histogram"
    assert len(row[f"{name}:bins"]) == 257  # edges
    assert row[f"{name}:bins"][row[f"{name}:values"].index(34)] == -12


def test_run_is_in_the_config_of_whichever_run_it_is(tmp_path: Path) -> None:
    run = wandb.init(dir=tmp_path, config={"lr": 3})
    sink = opened(loggers=["wandb"], run={"config": "a: 1"})
    sink.write([observation(max=1.0)])
    sink.close()
    config = dict(run.config)
    assert (config["lr"], config["numscope"]["config"], config["numscope"]["torch"]) == (3, "a: 1", torch.__version__)


def test_other_ranks_without_a_run_log_no_statistics(tmp_path: Path) -> None:
    sink = opened(rank=1, loggers=["wandb"])
    sink.write([observation(0, max=1.0)])
    sink.alert(ALERT)
    sink.close()
    assert not list(tmp_path.rglob("run-*.wandb"))


def alerts(folder: Path) -> list[tuple[str, str, str]]:
    """Title, text and level of each of the one run's alerts."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.rglob("run-*.wandb")
    for _ in range(500):
        found = [Record.FromString(record) for record in records(path)]
        if found and found[-1].WhichOneof("record_type") == "exit":
            break
        time.sleep(0.02)
    return [(one.alert.title, one.alert.text, one.alert.level) for one in found if one.WhichOneof("record_type") == "alert"]


def test_alerts_are_the_runs_own(tmp_path: Path) -> None:
    run = wandb.init(dir=tmp_path)
    sink = opened(loggers=["wandb"])
    sink.alert(ALERT)
    sink.alert(replace(ALERT, rule="a" * 90, layer="x", tensor="", text="Odd.", advice=""))
    sink.close()
    run.finish()
    assert alerts(tmp_path) == [
        ("numscope: loss spike", ALERT_LINE, "WARN"),
        ("numscope: " + "a" * 53, f"step 7: {'a' * 90}: x: Odd.", "WARN"),
    ]


def test_watch_without_statistics_alerts_the_run_that_the_script_has(tmp_path: Path) -> None:
    run = wandb.init(dir=tmp_path)
    with numscope.watch(torch.nn.Linear(2, 2)) as scope:
        scope._watch.alerting.desk.post([ALERT])
    run.finish()
    with numscope.watch(torch.nn.Linear(2, 2)) as scope:  # there is none
        scope._watch.alerting.desk.post([ALERT])
    assert alerts(tmp_path) == [("numscope: loss spike", ALERT_LINE, "WARN")]
    assert wandb.run is None


def test_run_that_gets_statistics_gets_each_alert_once(tmp_path: Path) -> None:
    run = wandb.init(dir=tmp_path)
    config = {"s": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": {
        "enabled": True, "tensors": ["activation"], "stats": ["max"]}}}  # fmt: skip
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with numscope.watch(model, config=config, loggers="wandb", log_dir=str(tmp_path / "logs")) as scope:
        scope._watch.alerting.desk.post([ALERT])
    run.finish()
    assert len(alerts(tmp_path)) == 1
