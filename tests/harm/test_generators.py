"""Nothing of the tool moves a global generator of random numbers: of Python, NumPy, or torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.warm import COLD

STATE = """
import random, sys
import numpy, torch

def state():
    return random.getstate(), str(numpy.random.get_state()), torch.get_rng_state().tolist()

def same(what):
    assert state() == before, what

random.seed(0); numpy.random.seed(0); torch.manual_seed(0)
before = state()
"""

IMPORTS = """
import importlib, pkgutil
import numscope

def stop(*_):
    raise ImportError

numscope_modules = [m.name for m in pkgutil.walk_packages(numscope.__path__, "numscope.", onerror=stop)]
imported = set()
own = ("numscope.cli", "numscope.doctor", "numscope.__main__", "numscope.runs.diff_text")  # processes of their own, which print with rich
own += ("numscope.integrations.lightning", "numscope.integrations.ray")  # whose own tests look: the frameworks load rich
for name in numscope_modules:
    if not name.startswith(own) and name != "numscope.report.text" and ".features." not in name:
        try:
            importlib.import_module(name)
            imported.add(name.removeprefix("numscope."))
        except ImportError:  # of an extra that is not installed
            pass
        same(name)
assert len(numscope_modules) > 200 and "rich" not in sys.modules
assert imported >= {"integrations.transformers", "compat.debug_tool", "compat.underflow_overflow"}
"""

WATCH = """
import logging
import numscope
from torch import nn

tensors = ["activation", "gradient", "dgrad", "weight", "wgrad"]
statistics = {"enabled": True, "tensors": tensors, "stats": ["max", "std", "mxfp8_underflows_pct"]}
config = {"all": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": statistics}}
model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))
optimizer = torch.optim.Adam(model.parameters())
torch.manual_seed(0)
before = state()
for options in {}, {"level": "sentinel"}, {"trace": (1,)}:
    scope = numscope.watch(model, config=config, log_dir="logs", json="findings.json", on_nonfinite="warn", **options)
    same("watch")
    for step in range(4):
        x = torch.ones(2, 4)
        if step == 2:
            x[0, 0] = torch.inf  # a finding, its replay, its report
        (model(x).square().log() - x.square().log().mean()).mean().backward()
        if step != 2:
            optimizer.step()
        optimizer.zero_grad()
        torch.manual_seed(0)
        same(step)
    assert ("trace" in options) != bool(scope.findings or scope.contained)
    scope.close()
    same("close")
"""


LOOP = """
for step in range(3):
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
    torch.manual_seed(0)
    same(step)
"""


def run(code: str, folder: Path, *before: str) -> None:
    script = folder / "script.py"
    script.write_text(code)
    done = subprocess.run([*before, str(script)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


WATCH_IN_A_CHILD = f"""
import os
child = os.fork()
if not child:
    exec({WATCH!r})
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, "watch"
"""


def test_imports_and_a_watch_with_its_findings_and_files(tmp_path: Path) -> None:
    run(STATE + WATCH_IN_A_CHILD + IMPORTS, tmp_path, COLD)  # with what the modules import in their turn


def test_run_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    run(STATE + WATCH.split("for options in")[0] + LOOP, tmp_path, sys.executable, "-m", "numscope", "run")
