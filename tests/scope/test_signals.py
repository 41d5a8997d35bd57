"""SIGTERM and SIGHUP: files are written, then the signal does what it does without a watch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import numscope
from numscope.page.frame import load

SCRIPT = """
import os, signal, sys, time, torch, numscope
from torch import nn

{before}
stats = {{"enabled": True, "stats": ["max"], "tensors": ["weight"]}}
config = {{"s": {{"enabled": True, "layers": {{"layer_types": ["Linear"]}}, "statistics": stats}}}}
model = nn.Linear(2, 2)
numscope.watch(model, log_dir={folder!r}, json={file!r}, config=config)
{after}
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(5):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
os.kill(os.getpid(), signal.{name})
time.sleep(0.1)
print("went on")
"""


def run(tmp_path: Path, name: str, before: str = "", after: str = "") -> subprocess.CompletedProcess[str]:
    text = SCRIPT.format(folder=str(tmp_path / "logs"), file=str(tmp_path / "found.json"), name=name, before=before, after=after)
    (tmp_path / "script.py").write_text(textwrap.dedent(text))
    return subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_files_are_written_and_the_process_ends_by_the_signal(name: str, tmp_path: Path) -> None:
    done = run(tmp_path, name, before=f"signal.signal(signal.{name}, signal.SIG_DFL)")  # nohup's children ignore SIGHUP
    assert done.returncode == -getattr(signal, name) and not done.stdout, done.stderr
    assert load(tmp_path / "logs").step.max() >= 3
    assert json.loads((tmp_path / "found.json").read_text())["meta"]["steps"] >= 4
    assert json.loads((tmp_path / "logs" / "findings-rank0.json").read_text())["meta"]["ended"] is False


ENDING = """
import os, signal, time, torch, numscope
from torch import nn

class Logger:
    def log_scalar(self, name, value, iteration, **kwargs):
        pass

    def close(self):  # in the middle of an end
        for _ in range({times}):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
        print("logger closed", flush=True)

stats = {{"enabled": True, "stats": ["max"], "tensors": ["weight"]}}
config = {{"s": {{"enabled": True, "layers": {{"layer_types": ["Linear"]}}, "statistics": stats}}}}
model = nn.Linear(2, 2)
scope = numscope.watch(model, log_dir={folder!r}, json={file!r}, config=config, loggers=[Logger()])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(5):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
{end}
print("went on")
"""


@pytest.mark.parametrize(("end", "times"), [("scope.close()", 1), ("raise SystemExit(3)", 1), ("scope.close()", 2)])
def test_a_signal_ends_the_process_once_an_end_that_is_at_work_is_done_and_a_second_one_at_once(
    end: str, times: int, tmp_path: Path
) -> None:
    text = ENDING.format(folder=str(tmp_path / "logs"), file=str(tmp_path / "found.json"), end=end, times=times)
    (tmp_path / "script.py").write_text(text)
    done = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "logger closed\n" if times == 1 else ""), done.stderr
    if times == 1:
        assert load(tmp_path / "logs").step.max() == 4
        assert json.loads((tmp_path / "found.json").read_text())["meta"]["ended"] is True


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_handler_of_the_scripts_is_the_one_that_counts(where: str, tmp_path: Path) -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: print('saved'))"
    done = run(tmp_path, "SIGTERM", **{where: handler})
    assert (done.returncode, done.stdout) == (0, "saved\nwent on\n"), done.stderr


def test_a_handler_that_calls_the_one_before_it_goes_on(tmp_path: Path) -> None:
    handler = """
old = signal.getsignal(signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda *given: (print("saved"), callable(old) and old(*given)))
"""
    done = run(tmp_path, "SIGTERM", after=handler)
    assert (done.returncode, done.stdout) == (0, "saved\nwent on\n"), done.stderr


def test_ignored_signals_stay_so(tmp_path: Path) -> None:
    done = run(tmp_path, "SIGHUP", before="signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr


def test_children_and_the_time_after_the_watch_have_the_default(tmp_path: Path) -> None:
    with numscope.watch(nn.Linear(2, 2), json=str(tmp_path / "found.json")):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        child = os.fork()
        if not child:
            os._exit(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
        assert os.waitpid(child, 0)[1] == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with numscope.watch(nn.Linear(2, 2)):  # nothing to write
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert torch.is_grad_enabled()
