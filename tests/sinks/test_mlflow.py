"""MLflow with its file store, read back by its own client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import numscope
from numscope.sinks.mlflow import MAX_KEY, MlflowSink, key_of
from tests.late import late
from tests.sinks.seen import ALERT, ALERT_LINE, observation, opened

mlflow = late("mlflow")


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield
    mlflow.set_tracking_uri(before)


def history(run_id: str, key: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in mlflow.MlflowClient().get_metric_history(run_id, key)]


def test_metrics_go_to_the_active_run() -> None:
    with mlflow.start_run() as run:
        sink = opened(loggers=["mlflow"])
        for step in (0, 100):
            sink.write([observation(step, max=step + 0.5, mean=None, exponent_histogram=[1.0] * 256)])
        sink.close()
    assert history(run.info.run_id, "activation.max/fc1") == [(0, 0.5), (100, 100.5)]
    assert set(mlflow.get_run(run.info.run_id).data.metrics) == {"activation.max/fc1"}


def test_without_an_active_run_one_of_our_own_is_made_and_does_not_become_the_scripts() -> None:
    sink = opened(loggers=["mlflow"])
    sink.write([observation(3, max=1.0)])
    assert mlflow.active_run() is None
    sink.close()
    (run,) = mlflow.MlflowClient().search_runs(["0"])
    assert run.info.status == "FINISHED"
    assert history(run.info.run_id, "activation.max/fc1") == [(3, 1.0)]


def test_more_metrics_than_a_server_takes_at_once_are_split() -> None:
    with mlflow.start_run() as run:
        sink = MlflowSink(run.info.run_id)
        sink.write([observation(0, f"layer{i}", **{f"s{j}": 1.0 for j in range(11)}) for i in range(100)])
        sink.close()
    assert len(mlflow.get_run(run.info.run_id).data.metrics) == 1100


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("weight[in_proj_weight].max/attn", "weight.in_proj_weight.max/attn"),
        ("weight.max/../../etc/passwd", "weight.max/.._.._etc_passwd"),
        ("weight.max/..", "weight.max/__"),
        ("weight.max/größe", "weight.max/gr__e"),
        ("weight.max/decoder.0.fc1", "weight.max/decoder.0.fc1"),
    ],
)
def test_layer_name_cannot_choose_a_path(name: str, key: str, tmp_path: Path) -> None:
    assert key_of(name) == key
    group, _, layer = name.partition("/")
    tensor, _, label = group.rpartition(".")
    with mlflow.start_run() as run:
        sink = MlflowSink()
        sink.write([observation(0, layer, tensor, **{label: 1.0})])
        sink.close()
    assert history(run.info.run_id, key) == [(0, 1.0)]
    assert {path.name for path in tmp_path.iterdir()} == {"mlruns"}


def test_long_names_stay_different_and_short_enough() -> None:
    keys = {key_of("x" * 400 + str(i)) for i in range(3)}
    assert len(keys) == 3
    assert {len(key) for key in keys} == {MAX_KEY}


def test_run_is_in_the_parameters_shortened_and_none_is_changed() -> None:
    with mlflow.start_run() as run:
        for seed in (1, 2):
            sink = opened(loggers=["mlflow"], run={"config": "x" * 9000, "world_size": seed, "command": "train.py \udc80"})
            sink.write([observation(seed, max=1.0)])
            sink.close()
    params = mlflow.get_run(run.info.run_id).data.params
    assert params["numscope/config"] == f"{'x' * 5960}… (3,040 more characters)"
    assert (params["numscope/world_size"], params["numscope/torch"]) == ("1", torch.__version__)
    assert params["numscope/command"] == "train.py \\udc80"
    assert history(run.info.run_id, "activation.max/fc1") == [(1, 1.0), (2, 1.0)]


def test_parameters_that_are_refused_cost_no_statistics(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*args: object) -> None:
        raise ConnectionError("not now")

    monkeypatch.setattr(mlflow.MlflowClient, "get_run", refuse)
    with mlflow.start_run() as run:
        sink = opened(loggers=["mlflow"])
        sink.write([observation(0, max=1.0)])
        sink.close()
    assert history(run.info.run_id, "activation.max/fc1") == [(0, 1.0)]
    assert caplog.text.count("MLflow has not taken all of the run's parameters: ConnectionError: not now") == 1


def test_other_ranks_without_a_run_log_no_statistics(tmp_path: Path) -> None:
    sink = opened(rank=1, loggers=["mlflow"])
    sink.write([observation(0, max=1.0)])
    sink.alert(ALERT)
    sink.close()
    assert mlflow.MlflowClient().search_runs(["0"]) == []


def test_alert_is_a_tag_of_its_rule_with_the_latest_and_how_many() -> None:
    with mlflow.start_run() as run:
        sink = opened(loggers=["mlflow"])
        sink.alert(ALERT)
        sink.alert(replace(ALERT, rule="../own"))
        sink.alert(replace(ALERT, step=99))
        sink.close()
    tags = {key: value for key, value in mlflow.get_run(run.info.run_id).data.tags.items() if key.startswith("numscope/")}
    assert tags == {
        "numscope/alert.loss spike": ALERT_LINE.replace("step 7", "step 99") + " (2 so far)",
        "numscope/alert..._own": ALERT_LINE.replace("loss spike", "../own"),
    }


def test_watch_without_statistics_tags_the_run_that_the_script_has() -> None:
    with mlflow.start_run() as run, numscope.watch(torch.nn.Linear(2, 2)) as scope:
        scope._watch.alerting.desk.post([ALERT])
        scope.close()
    assert mlflow.get_run(run.info.run_id).data.tags["numscope/alert.loss spike"] == ALERT_LINE
