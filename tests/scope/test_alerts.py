from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import numscope
from numscope.alerts.desk import Desk
from numscope.alerts.engine import Engine as OwnEngine
from numscope.config.alert_plan import AlertPlan
from numscope.detect.journal import Journal
from numscope.page.recorded import read_recorded
from numscope.records.alert import Alert
from numscope.records.errors import AlertError, UsageError
from numscope.scope.scope import Scope


class Engine(OwnEngine):
    """Speaks at some steps of one layer, in place of a watch's own."""

    def __init__(self, scope: Scope, *steps: int, fails_at: int = -1) -> None:
        assert scope._watch._detection is not None
        judge = scope._watch._detection.judge
        super().__init__(AlertPlan(), desk_of(scope).post, scope._watch._detection.evidence.steps.optimizers, judge.skips)
        judge.onlooker = self
        self.steps = steps
        self.fails_at = fails_at
        self.seen: list[tuple[int, bool]] = []
        self.skips: list[tuple[int, float | None]] = []

    def of_step(self, number: int, journal: Journal) -> Iterable[Alert]:
        self.seen.append((number, any("grad" in slot for event in journal.events for slot, _, _ in event.items)))
        if number == self.fails_at:
            raise RuntimeError("a rule of ours")
        return [Alert(number, "overflow ahead", "0", "output", 3.0, 2.0, "It grows.", "Stop.")] if number in self.steps else []

    def of_skip(self, number: int, scale: float | None) -> Iterable[Alert]:
        self.skips.append((number, scale))
        return []


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))


def desk_of(scope: Scope) -> Desk:
    assert scope._watch._detection is not None
    found = scope._watch._detection.judge.company.messenger
    assert isinstance(found, Desk)
    return found


def train(net: nn.Module, steps: int, lr: float = 0.1) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(steps):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def test_engine_reads_each_steps_rows_and_its_alerts_are_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    net = model()
    with numscope.watch(net) as scope:
        engine = Engine(scope, 1, 2, 3)
        train(net, 4)
    assert engine.seen == [(0, True), (1, True), (2, True), (3, True)]
    assert [alert.step for alert in scope.alerts] == [1]
    assert capsys.readouterr().err == "numscope: alert: step 1: overflow ahead: 0 output: It grows. Stop.\n"


def test_engine_sees_no_step_that_is_a_findings() -> None:
    net = model()
    with numscope.watch(net, on_nonfinite="warn", replay=False) as scope:
        engine = Engine(scope)
        optimizer = train(net, 1)
        net(torch.full((2, 4), float("nan"))).sum().backward()
        optimizer.step()
    assert len(scope.findings) == 1
    assert [number for number, _ in engine.seen] == [0]


def test_engine_hears_of_steps_that_grad_scaler_leaves_out() -> None:
    net = model()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net) as scope:
        engine = Engine(scope)
        for factor in (1.0, 1e38, 1.0):
            optimizer.zero_grad()
            scaler.scale(net(torch.ones(2, 4)).sum() * factor * factor).backward()
            scaler.step(optimizer)
            scaler.update()
    assert engine.skips == [(1, 4.0)]


def test_engines_own_error_ends_the_engine_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    net = model()
    with numscope.watch(net) as scope:
        engine = Engine(scope, fails_at=1)
        optimizer = train(net, 3)
        assert scope.fault == ""
        with pytest.raises(numscope.NonFiniteError):
            net(torch.full((2, 4), float("nan"))).sum().backward()
            optimizer.step()
    assert [number for number, _ in engine.seen] == [0, 1]
    assert [r.getMessage().split("\n")[0] for r in caplog.records if r.levelno == logging.ERROR] == [
        "alerts over each step's rows are off: RuntimeError: a rule of ours"
    ]


def test_off_means_off() -> None:
    net = model()
    with numscope.watch(net, alerts="off") as scope:
        assert scope._watch._detection is not None
        assert scope._watch._detection.judge.onlooker is None
        train(net, 2)
    assert scope.alerts == []


def test_mode_raise_stops_before_the_optimizer_touches_the_weights() -> None:
    net = model()
    with numscope.watch(net, alerts={"mode": "raise"}) as scope:
        Engine(scope, 1)
        optimizer = train(net, 1)
        before = [p.detach().clone() for p in net.parameters()]
        net(torch.ones(2, 4)).sum().backward()
        with pytest.raises(AlertError, match=r"^step 1: overflow ahead: 0 output: It grows\. Stop\.$"):
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
        assert [alert.step for alert in scope.alerts] == [1]


def test_finding_comes_before_an_alert_that_is_to_stop_the_run() -> None:
    net = model()
    with numscope.watch(net, alerts="raise", replay=False) as scope:
        optimizer = train(net, 1)
        net(torch.full((2, 4), float("nan"))).sum().backward()
        desk_of(scope).post([Alert(1, "eval mode", "", "", None, None, "It is.")])
        with pytest.raises(numscope.NonFiniteError):
            optimizer.step()


def test_alert_of_the_last_step_is_raised_when_the_watch_closes() -> None:
    net = model()
    scope = numscope.watch(net, alerts="raise")
    train(net, 1)
    desk_of(scope).post([Alert(1, "eval mode", "", "", None, None, "It is.")])
    with pytest.raises(AlertError, match="It is"):
        scope.close()
    assert scope.closed
    scope.close()


def test_folder_and_file_have_the_alerts(tmp_path: Path) -> None:
    net = model()
    path = tmp_path / "out.json"
    with numscope.watch(net, json=str(path), log_dir=str(tmp_path / "logs")) as scope:
        Engine(scope, 1)
        train(net, 2)
        early = json.loads((tmp_path / "logs" / "findings-rank0.json").read_text(encoding="utf-8"))
    for text in (path.read_text(encoding="utf-8"), (tmp_path / "logs" / "findings-rank0.json").read_text(encoding="utf-8")):
        assert json.loads(text)["alerts"] == early["alerts"]
    assert early["alerts"][0]["rule"] == "overflow ahead"
    assert "alert: step 1: overflow ahead" in (tmp_path / "logs" / "report-rank0.txt").read_text(encoding="utf-8")


KILLED = """
import os, signal, sys
import torch, numscope
from numscope.records.alert import Alert
net = torch.nn.Linear(4, 1)
scope = numscope.watch(net, log_dir=sys.argv[1])
for layer in map(str, range(30)):
    scope._watch.alerting.desk.post([Alert(0, "eval mode", layer, "", None, None, "It is.")])
os.kill(os.getpid(), getattr(signal, sys.argv[2]))
"""


@pytest.mark.parametrize(("name", "least"), [("SIGTERM", 30), ("SIGKILL", 25)])
def test_killed_run_leaves_its_alerts(tmp_path: Path, name: str, least: int) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), name], stderr=subprocess.DEVNULL)
    assert ended.returncode == -getattr(signal, name)
    data = json.loads((tmp_path / "findings-rank0.json").read_text(encoding="utf-8"))
    assert len(data["alerts"]) >= least
    assert not data["meta"]["ended"]


def test_hostile_names_can_neither_color_a_terminal_nor_end_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with numscope.watch(model()) as scope:
        desk_of(scope).post([Alert(0, "eval mode", "a\x1b[31m\nb", "", None, None, "It\u202e is.")])
    assert capsys.readouterr().err == "numscope: alert: step 0: eval mode: a\\x1b[31m\\nb: It\\u202e is.\n"


# ---- users' rules

GROWS = """
import numscope
from numscope import Alert

@numscope.rule("leaves_band")
def leaves_band(observation, history):
    middle, spread = history.median("max"), history.mad("max")
    if len(history.values("max")) >= 5 and observation.values["max"] > middle + 8 * spread:
        return Alert(observation.step, "", observation.layer, observation.tensor, observation.values["max"], middle, "It leaves its band.")

@numscope.rule("says")
def says(observation, at=3):
    return "It is three." if observation.step == at else None
"""
CONFIG: dict[str, Any] = {
    "s": {"enabled": True, "layers": {"layer_names": ["0"]}, "statistics": {"enabled": True, "stats": ["max"], "tensors": ["activation"]}}
}


def run_rules(tmp_path: Path, config: dict[str, Any], **options: Any) -> Scope:
    tmp_path.mkdir(exist_ok=True)
    file = tmp_path / "rules.py"
    file.write_text(GROWS, encoding="utf-8")
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with numscope.watch(net, config=config, features=str(file), log_dir=str(tmp_path / "logs"), **options) as scope:
        for x in (1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1.02, 50.0, 1.0):
            optimizer.zero_grad()
            net(torch.full((2, 4), x)).sum().backward()
            optimizer.step()
    return scope


def test_users_rules_give_alerts_with_a_robust_history_of_their_site(tmp_path: Path) -> None:
    scope = run_rules(tmp_path, CONFIG)
    assert [(one.step, one.rule, one.layer, one.tensor, one.text) for one in scope.alerts] == [
        (3, "says", "0", "activation", "It is three."),
        (7, "leaves_band", "0", "activation", "It leaves its band."),
    ]
    log_text = (tmp_path / "logs" / "debug_logs" / "globalrank-0.log").read_text(encoding="utf-8")
    assert "WARNING - alert: step 7: leaves_band: 0 activation: It leaves its band." in log_text
    data = json.loads((tmp_path / "logs" / "findings-rank0.json").read_text(encoding="utf-8"))
    assert [one["rule"] for one in data["alerts"]] == ["says", "leaves_band"]


def test_configuration_switches_a_users_rule_off_and_the_option_counts_first(tmp_path: Path) -> None:
    config = {**CONFIG, "alerts": {"says": False, "leaves_band": False}}
    assert [one.rule for one in run_rules(tmp_path, config, alerts={"leaves_band": True}).alerts] == ["leaves_band"]
    with pytest.raises(UsageError, match=r'alerts: got the rule "leves_band".* Did you mean "leaves_band"'):
        run_rules(tmp_path, CONFIG, alerts={"leves_band": False})


def test_without_detection_users_rules_still_speak_and_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AlertError, match="It is three"):
        run_rules(tmp_path, {**CONFIG, "alerts": "raise"}, on_nonfinite=None)
    assert "alerts: detection is off, so only rules over statistics speak" in caplog.text


def test_without_detection_the_folder_has_a_findings_file_only_for_alerts(tmp_path: Path) -> None:
    run_rules(tmp_path / "loud", CONFIG, on_nonfinite=None)
    run_rules(tmp_path / "quiet", {**CONFIG, "alerts": "off"}, on_nonfinite=None)
    data = json.loads((tmp_path / "loud" / "logs" / "findings-rank0.json").read_text(encoding="utf-8"))
    assert ([one["rule"] for one in data["alerts"]], data["meta"]["detecting"]) == (["says", "leaves_band"], False)
    assert not (tmp_path / "quiet" / "logs" / "findings-rank0.json").exists()
    recorded = read_recorded(tmp_path / "loud" / "logs")
    assert (recorded.watched, recorded.num_alerts) == (False, 2)


def test_alerts_without_anything_that_could_speak_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^alerts: got 'raise' without detection, expected it on\."):
        numscope.watch(model(), alerts="raise", on_nonfinite=None)
    numscope.watch(model(), alerts="off", on_nonfinite=None).close()
