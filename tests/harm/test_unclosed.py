"""A script whose watch nobody closes ends as it does bare: the same numbers, the same words, the same status, in the same order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import COLD

SCRIPT = """
import atexit, random, sys, threading, time
import torch
from torch import nn
import numscope

def watch(model, name):
    if WATCHED:
        statistic = {"enabled": True, "stats": ["max"], "tensors": ["output", "weight", "gradient"], "freq": 1}
        config = {"all": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": statistic}}
        numscope.watch(model, config=config, log_dir=name)

def told(model):
    weights = [p.detach().sum().item().hex() for p in model.parameters()]
    print(weights, torch.rand(()).item().hex(), random.random(), threading.active_count(), flush=True)

def train(name):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    watch(model, name)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        model(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model

def loss_of_a_model_that_goes(name):
    model = nn.Linear(4, 1)
    watch(model, name)
    return model(torch.randn(2, 4)).mean()

WATCHED = sys.argv[1] == "watched"
torch.manual_seed(0)
random.seed(0)
atexit.register(lambda: told(kept))
kept = train("kept")
atexit.register(lambda: told(train("in_a_handler")))
loss_of_a_model_that_goes("gone").backward()
left = loss_of_a_model_that_goes("left")

def late():
    time.sleep(0.2)
    told(train("late"))

threading.Thread(target=late).start()
"""


@pytest.mark.parametrize(
    "last", ["", "raise ValueError('its own')", "sys.exit(5)", "raise KeyboardInterrupt"], ids=lambda last: last or "falls off"
)
def test_script_ends_as_it_does_bare(last: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(SCRIPT + last)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [subprocess.Popen([sys.executable, str(file), how], cwd=tmp_path, text=True, **pipes) for how in ("bare", "watched")]  # type: ignore[call-overload]
    bare, watched = [(*process.communicate(timeout=300), process.returncode) for process in both]
    assert watched == bare
    assert all(list((tmp_path / name / "statistics").glob("*.parquet")) for name in ("kept", "in_a_handler", "late"))


def test_interpreter_that_ends_by_itself_says_nothing_of_what_it_closes(tmp_path: Path) -> None:
    """It drops what is left when files are closed; a process that was forked from a warm one has no such end."""
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    done = subprocess.run([COLD, str(file), "watched"], cwd=tmp_path, text=True, capture_output=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
