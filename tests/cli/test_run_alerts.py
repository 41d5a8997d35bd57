"""``numscope run --alerts``: from a rule to the last line and the exit status."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.cli.test_run import cli, last_line

TRAIN = """
import sys
import torch

def train(steps):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        net(torch.full((2, 4), 100.0 if step == 3 else 1.0)).sum().backward()
        optimizer.step()
        print(step, flush=True)

if __name__ == "__main__":
    if "child" in sys.argv:
        process = torch.multiprocessing.get_context("spawn").Process(target=train, args=(5,))
        process.start()
        process.join()
    else:
        train(5)
"""
RULES = """
import numscope

@numscope.rule("high")
def high(observation):
    return "The input is high." if observation.values["max"] > 10 else None
"""
CONFIG = """
alerts:
  {alerts}
inputs:
  enabled: true
  layers: {{layer_names: ["0"]}}
  statistics: {{enabled: true, stats: [max], tensors: [activation]}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    twice = TRAIN.replace("100.0 if step == 3 else 1.0", "1.0").replace("train(5)", "train(40)")
    (tmp_path / "twice.py").write_text(twice, encoding="utf-8")
    (tmp_path / "rules.py").write_text(RULES, encoding="utf-8")
    write_config(tmp_path, "mode: note")
    return tmp_path


def write_config(folder: Path, alerts: str) -> None:
    (folder / "stats.yaml").write_text(textwrap.dedent(CONFIG).format(alerts=alerts), encoding="utf-8")


WORDS = ("run", "--config", "stats.yaml", "--features", "rules.py", "--log-dir", "logs")
LINE = "numscope: alert: step 3: high: 0 activation: The input is high."


def test_noted_alerts_are_said_counted_and_kept(folder: Path) -> None:
    done = cli(*WORDS, "train.py", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "0\n1\n2\n3\n4\n"), done.stderr
    assert done.stderr.splitlines()[0] == LINE
    assert last_line(done) == "numscope: watched Sequential, 5 steps, n tensor observations: no finding, 1 alert"
    (alert,) = json.loads((folder / "logs" / "findings-rank0.json").read_text(encoding="utf-8"))["alerts"]
    assert (alert["rule"], alert["step"]) == ("high", 3)


def test_alert_stops_the_run_with_its_own_status(folder: Path) -> None:
    done = cli(*WORDS, "--alerts", "raise", "train.py", cwd=folder)
    assert done.returncode == 4, done.stderr
    assert done.stdout == "0\n1\n2\n3\n"  # the rule reads the numbers of a step that is over, so that the next one is stopped
    assert "Traceback" not in done.stderr
    said, stopped, *_ = done.stderr.splitlines()
    assert said == LINE
    assert stopped.startswith(f"numscope: high at step 3, rank 0: stopped at {folder / 'train.py'}:12 in train: optimizer.step()")
    assert last_line(done) == "numscope: watched Sequential, 4 steps, n tensor observations: no finding, 1 alert"


def test_option_takes_rules_as_a_configuration_does(folder: Path) -> None:
    said = cli("run", "twice.py", cwd=folder).stderr
    assert 'If this is intended, switch it off: --alerts "same batch again: off".' in said
    done = cli("run", "--alerts", "same batch again: off, constant loss: off", "twice.py", cwd=folder)
    assert "same batch again" not in done.stderr
    assert "no finding" in last_line(done)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("of", "got 'of', expected one of 'off', 'note', 'raise', 'warn', or rules, such as 'loss spike: off, dead units: off'. Did you m"),
        ("", "got '', expected one of"),
        ("a: [", "got 'a: [', expected one of"),
        ("loss spike", "got 'loss spike', expected one of"),
        ("los spike: off", 'got the rule "los spike", expected '),
        ("loss spike: {bnd: 1}", 'loss spike: got the setting "bnd", expected one of band. Did you mean "band"?'),
        ("loss spike: off, mode: rise", 'mode: got "rise", expected one of off, note, raise. Did you mean "raise"?'),
    ],
)
def test_wrong_option_is_refused_before_the_scripts_first_line(folder: Path, given: str, said: str) -> None:
    done = cli("run", "--alerts", given, "train.py", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"numscope: --alerts: {said}" in done.stderr


def test_option_counts_before_the_configuration(folder: Path) -> None:
    write_config(folder, "mode: raise")
    done = cli(*WORDS, "--alerts", "off", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "alert" not in done.stderr


@pytest.mark.parametrize(
    ("alerts", "said"),
    [
        ("hihg: off", 'alerts: got the rule "hihg", expected '),
        ("high: {much: 3}", 'alerts.high: got the setting "much", expected none: this rule has no settings.'),
        ("mode: rise", 'alerts.mode: got "rise", expected one of off, note, raise. Did you mean "raise"?'),
    ],
)
def test_wrong_configuration_is_refused_before_the_scripts_first_line(folder: Path, alerts: str, said: str) -> None:
    write_config(folder, alerts)
    done = cli(*WORDS, "train.py", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"stats.yaml: {said}" in done.stderr


def test_without_detection_it_is_said_that_only_own_rules_speak(folder: Path) -> None:
    done = cli(*WORDS, "--on-nonfinite", "off", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("alerts: detection is off, so only rules over statistics speak") == 1
    assert LINE in done.stderr.splitlines()
    assert last_line(done) == "numscope: watched Sequential, 5 steps: detection was off, 1 alert"


@pytest.mark.parametrize("mode", ["note", "raise"])
def test_child_processes_have_alerts_too(folder: Path, mode: str) -> None:
    done = cli(*WORDS, "--alerts", mode, "train.py", "child", cwd=folder)
    assert done.returncode == (0 if mode == "note" else 4), done.stderr
    assert LINE in done.stderr.splitlines()
    steps = 5 if mode == "note" else 4
    assert last_line(done) == f"numscope: watched Sequential in 1 child process, {steps} steps, n tensor observations: no finding, 1 alert"
    (file,) = folder.glob("logs/child*/findings-rank0.json")
    assert len(json.loads(file.read_text(encoding="utf-8"))["alerts"]) == 1


def test_configuration_of_alerts_alone_writes_no_statistics(folder: Path) -> None:
    (folder / "stats.yaml").write_text("alerts: {loss spike: off}\n", encoding="utf-8")
    done = cli("run", "--config", "stats.yaml", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert last_line(done) == "numscope: watched Sequential, 5 steps, n tensor observations: no finding"
    assert not (folder / "numscope_logs").exists()
