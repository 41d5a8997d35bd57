"""``numscope precision`` on real scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import numscope
from numscope.config import load

SOURCES = str(Path(numscope.__file__).parent.parent)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", SOURCES)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # more wait for one another on a busy machine, for nothing with so small models
    return tmp_path


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "numscope", *words], capture_output=True, text=True, timeout=580)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def launch() -> tuple[str, str]:
    """A launcher for the trials, as a user may name one."""
    return ("--launch", sys.executable)


def test_script_without_a_step_is_told_with_its_output(here: Path) -> None:
    (here / "s.py").write_text("import torch\nprint('hello')\nraise SystemExit(7)")
    done = cli("precision", "advise", "s.py")
    assert done.returncode == 1
    assert "s.py: ended with status 7 before a step was complete" in done.stderr
    assert done.stderr.endswith("hello\n")


NEVER = """
import torch
model = torch.nn.Linear(8, 8)
print("mean", model(torch.ones(4, 8)).mean().item())
"""


def test_script_that_never_steps_is_told_so_by_both(here: Path, launch: tuple[str, str]) -> None:
    (here / "never.py").write_text(NEVER)
    for command in ("advise", "bisect"):
        done = cli("precision", command, *launch, "never.py")
        assert (done.returncode, done.stdout) == (1, "")
        assert "numscope: never.py: ended before a step was complete: no backward of a loss" in done.stderr
        assert "\nmean " in done.stderr


CRASHES = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
raise ValueError("boom")
"""


def test_script_that_fails_after_some_steps_is_not_taken_for_one_that_was_over(here: Path, launch: tuple[str, str]) -> None:
    (here / "crashes.py").write_text(CRASHES)
    done = cli("precision", "advise", "--steps", "6", *launch, "crashes.py")
    assert done.returncode == 0, done.stderr
    assert "numscope: crashes.py: 4 steps of 6, then it ended with status 1\n" in done.stderr
    done = cli("precision", "advise", "--steps", "1", *launch, "crashes.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert "crashes.py: delayed could not be measured in 1 step: " in done.stderr


TEXT = Path(__file__).resolve().parents[2] / "LICENSE"
TRAIN = Path(__file__).with_name("tiny_text.py")

HALF = """
import torch
from torch import nn

class Sum(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(16, 16) / 4), scale

    def forward(self, x):
        return (x * self.scale) @ self.weight.T / self.scale  # beyond fp16 within, and back

model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), Sum(2.0**20), nn.Tanh(), nn.Linear(16, 16))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(1000):
    x = torch.randn(64, 16)
    with torch.autocast("cpu", torch.float16):
        y = model(x)
    loss = (y.float() - x.flip(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_bisect_killed_and_begun_again_finds_the_layer_that_overflows_under_autocast(here: Path, launch: tuple[str, str]) -> None:
    (here / "half.py").write_text(HALF)
    (here / "once.yaml").write_text("repeats: 1\n")
    words = ("precision", "bisect", "--recipe", "autocast", "--steps", "10", "--settings", "once.yaml", "--json", *launch, "half.py")
    with subprocess.Popen([sys.executable, "-m", "numscope", *words], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as first:
        state = here / "bisect.trials" / "state.json"
        deadline = time.monotonic() + 200
        while not (state.is_file() and len(json.loads(state.read_text())["trials"]) >= 2):
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(first.pid, signal.SIGKILL)
    known = len(json.loads(state.read_text())["trials"])
    done = cli(*words)
    assert done.returncode == 0, done.stderr
    assert f"bisect.trials: reusing {known} runs of an earlier search" in done.stderr
    found = json.loads(done.stdout)
    assert found["high_precision"] == [{"layer": "2", "gemm": None}]
    assert found["minimal"] and found["drift"] == "inf" and abs(found["drift_with_high_precision"]) <= 0.01
    assert load(here / "bisect.yaml").switches[0].feature == "disable_fp8_layer"
    (here / "half.py").write_text(HALF.replace("range(1000)", "range(10)"))
    assert cli("run", "half.py").returncode == 3  # nan
    assert cli("run", "--recipe", "autocast", "--config", "bisect.yaml", "half.py").returncode == 0


GROWS = ("--grow", "8")  # the input of the layer "mix" outgrows at each step what delayed scaling has seen


def test_bisect_finds_the_layer_that_outgrows_delayed_scaling_alone_and_the_yaml_acts(here: Path, launch: tuple[str, str]) -> None:
    (here / "once.yaml").write_text("repeats: 1\n")
    words = ("--recipe", "delayed", "--steps", "20", "--settings", "once.yaml", "--json", *launch, str(TRAIN), str(TEXT), *GROWS)
    done = cli("precision", "bisect", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {unit["layer"] for unit in found["high_precision"]} == {"mix"}
    assert "fprop" in {unit["gemm"] for unit in found["high_precision"]}
    assert found["outcome"] == "found" and found["minimal"]
    assert found["drift"] > 0.02 and abs(found["drift_with_high_precision"]) <= 0.01
    everything = next(one for one in found["trials"] if len(one["high_precision"]) == found["num_gemms"] == 30)
    assert everything["drift"] == 0.0  # bitwise torch's
    assert found["num_runs"] <= 12

    ran = cli("run", "--recipe", "delayed", "--config", "bisect.yaml", str(TRAIN), str(TEXT), *GROWS, "--steps", "20", "--seed", "0")
    assert ran.returncode == 0, ran.stderr
    trials = json.loads((here / "bisect.trials" / "state.json").read_text())["trials"]
    key = "kept " + " ".join(sorted(f"{unit['layer']}:{unit['gemm']}" for unit in found["high_precision"]))
    assert [float(line) for line in ran.stdout.split()] == trials[key]["losses"]


def test_advise_marks_the_layer_whose_activations_outgrow_delayed_scaling_and_no_other(here: Path, launch: tuple[str, str]) -> None:
    done = cli("precision", "advise", "--steps", "6", "--json", *launch, str(TRAIN), str(TEXT), *GROWS)
    assert done.returncode == 0, done.stderr
    advice = json.loads(done.stdout)
    assert advice["high_precision"] == [{"layer": "mix", "gemm": "fprop"}, {"layer": "mix", "gemm": "wgrad"}]
    assert advice["num_gemms"] == 30
    activation = next(one for one in advice["operands"] if (one["layer"], one["operand"]) == ("mix", "activation"))
    assert activation["takes"] == "e4m3" and "saturated" in activation["exceeds"]
    assert activation["formats"][activation["planned"]]["saturated_pct"] > 50
    assert cli("config", "check", "advise.yaml").returncode == 0
    (switch,) = load(here / "advise.yaml").switches
    assert (switch.feature, switch.settings["gemms"], switch.selection.pattern) == ("disable_fp8_gemm", ("fprop", "wgrad"), "^mix$")


def test_advise_prints_a_table_and_writes_nothing_where_nothing_is_to_be_kept_high(here: Path, launch: tuple[str, str]) -> None:
    done = cli("precision", "advise", "--steps", "4", "--recipe", "current", *launch, str(TRAIN), str(TEXT), *GROWS)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines[:-2])) < 80
    assert lines[lines.index("mix") + 1].split()[:2] == ["activation", "e4m3"]
    conclusion = "All 30 GEMMs can take current (measured over 4 steps): none has to stay in high precision, so no YAML was written."
    assert lines[-2] == conclusion
    assert lines[-1].startswith(f"To train with it: {sys.executable} -m numscope run --recipe current ")
    assert not (here / "advise.yaml").exists()
