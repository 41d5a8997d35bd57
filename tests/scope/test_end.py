"""Watches that nobody closes end in order before the interpreter does, wherever their references lie."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

_HEAD = """\
import gc, multiprocessing, os, sys, threading, time
import torch
from torch import nn
import numscope

STATISTIC = {"enabled": True, "stats": ["max"], "tensors": ["output", "weight"], "freq": 1}
STATISTICS = {"all": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": STATISTIC}}

def work(name, **options):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    files = {"log_dir": name, "json": f"{name}/it.json", "sarif": f"{name}/it.sarif"}
    os.makedirs(name)
    scope = numscope.watch(model, **files, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, scope
"""

_SHAPES = """\
class Ring: pass

kept = work("kept", config=STATISTICS)
model_alone = work("model_alone", config=STATISTICS)[0]
detection = work("detection")
work("local", config=STATISTICS)
gc.disable()
ring = Ring()
ring.ring, ring.it = ring, work("ring", config=STATISTICS)
del ring

def late():
    time.sleep(0.3)
    global later
    later = work("late_thread", config=STATISTICS)

def for_ever():
    it = work("daemon", config=STATISTICS)
    trained.set()
    time.sleep(1000)

trained = threading.Event()
threading.Thread(target=for_ever, daemon=True).start()
trained.wait()
threading.Thread(target=late).start()
"""
_NAMES = ("kept", "model_alone", "detection", "local", "ring", "late_thread", "daemon")


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    file = folder / "train.py"
    file.write_text(_HEAD + script)
    return subprocess.run([sys.executable, str(file)], cwd=folder, capture_output=True, text=True, timeout=300)


def num_rows(folder: Path) -> int:
    return sum(pyarrow.parquet.read_metadata(part).num_rows for part in folder.glob("statistics/*.parquet"))


def check(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        told = json.loads((folder / name / "it.json").read_text())
        assert told["findings"] == []
        assert json.loads((folder / name / "it.sarif").read_text())["runs"]
        if name == "detection":
            assert list((folder / name / "statistics").glob("*.parquet")), "the history of detection"
        else:
            assert num_rows(folder / name) == 12, name


@pytest.mark.parametrize(
    ("last", "status"), [("", 0), ("raise ValueError('its own')", 1), ("sys.exit(5)", 5)], ids=["falls off", "raises", "exits"]
)
def test_unclosed_watches_keep_what_they_saw(last: str, status: int, tmp_path: Path) -> None:
    done = run(tmp_path, _SHAPES + last)
    assert done.returncode == status, done.stderr
    assert "could not" not in done.stderr and "shutting down" not in done.stderr and "Exception ignored" not in done.stderr
    assert done.stderr.count("Traceback") == (status == 1)
    check(tmp_path, _NAMES)


def test_unclosed_watches_of_child_processes_end_with_them(tmp_path: Path) -> None:
    script = """
if __name__ == "__main__":
    kept = work("parent", config=STATISTICS)
    for method in ("fork", "spawn", "forkserver"):
        child = multiprocessing.get_context(method).Process(target=work, args=(method,), kwargs={"config": STATISTICS})
        child.start()
        child.join()
        assert child.exitcode == 0
    if os.fork() == 0:
        by_hand = work("by_hand", config=STATISTICS)
        sys.exit()
    os.wait()
"""
    done = run(tmp_path, script)
    assert done.returncode == 0, done.stderr
    check(tmp_path, ("parent", "fork", "spawn", "forkserver", "by_hand"))


def test_bad_last_loss_is_found_at_the_end_and_changes_no_status(tmp_path: Path) -> None:
    script = """
model, scope = work("kept")
loss = (model(torch.ones(2, 4)) * 0 - 1).log().mean()
loss.backward()
"""
    done = run(tmp_path, script)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    (finding,) = json.loads((tmp_path / "kept" / "it.json").read_text())["findings"]
    assert finding["culprit"]["op"] == "aten.log"
    assert "(model(torch.ones(2, 4)) * 0 - 1).log()" in done.stderr


def test_script_s_exception_is_what_ended_it(tmp_path: Path) -> None:
    script = """
model, scope = work("kept")
loss = (model(torch.ones(2, 4)) * 0 - 1).log().mean()
if torch.isnan(loss):
    raise RuntimeError("loss is nan")
"""
    done = run(tmp_path, script)
    assert done.returncode == 1
    (finding,) = json.loads((tmp_path / "kept" / "it.json").read_text())["findings"]
    assert "the script ended with RuntimeError: loss is nan" in finding["note"]
