"""The culprit's line is the script's own, however its code is written and whichever of torch's functions it calls."""

from __future__ import annotations

import json
import linecache
import os
import subprocess
import sys
from pathlib import Path

import pytest

import numscope
from numscope.records.finding import Reason
from tests.replay.scripts import HEAD, culprit_of

MODEL = "model = nn.Linear(4, 3)\ndef outputs():\n    return model(torch.randn(8, 4))\n"
# name: a script with the line at fault, reason
WRITTEN = {
    "module level": (
        "model = nn.Linear(4, 3)\noptimizer = torch.optim.SGD(model.parameters(), lr=1e-3)\n"
        "loss = (model(torch.ones(8, 4)) - 100).log().mean()  # FAULT\nloss.backward()\noptimizer.step()\n",
        Reason.DOMAIN,
    ),
    "lambda within a lambda": (
        MODEL + "safe = lambda y: (y - 100).log()  # FAULT\nlosses = {'log': lambda y: safe(y).mean()}\n"
        "def step(i):\n    return losses['log'](outputs())\nLOOP\n",
        Reason.DOMAIN,
    ),
    "list comprehension over lines": (
        MODEL + "def step(i):\n    return sum([\n        torch.sqrt(\n            -part.abs() - 1).mean()\n"
        "        for part in outputs().unbind(1)\n    ])\nLOOP\n",
        Reason.DOMAIN,
    ),
    "generator": (
        MODEL + "def parts(y):\n    for part in y.split(2):\n        yield (part - 100).log()  # FAULT\n"
        "def step(i):\n    return sum(part.mean() for part in parts(outputs()))\nLOOP\n",
        Reason.DOMAIN,
    ),
    "decorated methods": (
        """
import functools
def timed(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs)
    return inner
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)
    @timed
    @torch.autocast("cpu", enabled=False)
    def forward(self, x):
        y = self.body(x)
        return y * self.scale(y)
    @torch.no_grad()
    def scale(self, y):
        return 1 / (y - y).norm()  # FAULT
model = Model()
def step(i):
    return model(torch.randn(8, 4)).mean()
LOOP
""",
        Reason.DIVISION_BY_ZERO,
    ),
    "property and a call by the standard library": (
        """
from functools import reduce
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)
    @property
    def gain(self):
        return reduce(lambda a, b: a / b, self.body.weight.detach().flatten() * 0)  # FAULT
    def forward(self, x):
        return self.body(x) * self.gain
model = Model()
def step(i):
    return model(torch.randn(8, 4)).mean()
LOOP
""",
        Reason.DIVISION_BY_ZERO,
    ),
    "a distribution's entropy": (
        MODEL + "def step(i):\n    hidden = torch.ones(8, 3, dtype=torch.bool)\n    logits = outputs().masked_fill(hidden, -math.inf)\n"
        "    return torch.distributions.Categorical(logits=logits, validate_args=False).entropy().mean()  # FAULT\nLOOP\n",
        Reason.INF_MINUS_INF,
    ),
    "a divergence between distributions": (
        MODEL + "def step(i):\n    y = outputs()\n    zero = torch.zeros_like(y)\n"
        "    p, q = (torch.distributions.Normal(y, s, validate_args=False) for s in (zero + 1, zero))\n"
        "    return torch.distributions.kl_divergence(p, q).mean()  # FAULT\nLOOP\n",
        Reason.DIVISION_BY_ZERO,
    ),
    "a loss module of torch": (
        MODEL + "criterion = nn.GaussianNLLLoss(eps=0.0)\ndef step(i):\n    y = outputs()\n"
        "    return criterion(y, torch.zeros(8, 3), torch.zeros(8, 3))  # FAULT\nLOOP\n",
        Reason.DOMAIN,
    ),
    "a parametrization": (
        "model = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))\nwith torch.no_grad():\n"
        "    model.parametrizations.weight.original1.zero_()\ndef step(i):\n    return model(torch.randn(8, 4)).mean()  # FAULT\nLOOP\n",
        Reason.DIVISION_BY_ZERO,
    ),
    "an optimizer of torch within a function": (
        "model = nn.Linear(4, 3)\noptimizer = torch.optim.Adam(model.parameters(), eps=0.0)\n"
        "def update(loss):\n    loss.backward()\n    optimizer.step()  # FAULT\n"
        "for i in range(3):\n    update((model(torch.randn(8, 4)) * 0).mean())\n",
        Reason.OPTIMIZER_UPDATE,
    ),
    "an optimizer behind GradScaler": (
        "model = nn.Linear(4, 3)\noptimizer = torch.optim.Adam(model.parameters(), eps=0.0)\nscaler = torch.amp.GradScaler('cpu')\n"
        "for i in range(3):\n    scaler.scale((model(torch.randn(8, 4)) * 0).mean()).backward()\n    scaler.step(optimizer)  # FAULT\n"
        "    scaler.update()\n",
        Reason.OPTIMIZER_UPDATE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_line_is_the_script_s(tmp_path: Path, name: str) -> None:
    script, reason = WRITTEN[name]
    culprit = culprit_of(tmp_path, script)
    assert culprit.reason == reason, culprit
    assert culprit.file == str(tmp_path / "train.py")
    if "comprehension" in name:
        assert "torch.sqrt(" in culprit.code
    assert not any(f"{os.sep}torch{os.sep}" in file for file, _, _, _ in culprit.stack)


@pytest.mark.parametrize("name", ["<ipython-input-3-5b1f>", "<cell 3>"])
def test_notebook_cell_keeps_its_name_and_text(tmp_path: Path, name: str) -> None:
    cell = "y = model(torch.randn(8, 4))\nloss = (y - 100).log().mean()\n"
    linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
    script = (
        f"model = nn.Linear(4, 3)\noptimizer = torch.optim.SGD(model.parameters(), lr=1e-3)\nexec(compile({cell!r}, {name!r}, 'exec'))\n"
    )
    script += "loss.backward()\noptimizer.step()\n"
    culprit = culprit_of(tmp_path, script)
    assert (culprit.file, culprit.line, culprit.code) == (name, 2, "loss = (y - 100).log().mean()")
    assert str(tmp_path / "train.py") in [file for file, _, _, _ in culprit.stack]


def test_line_is_found_by_numscope_run_though_the_script_changes_its_folder(tmp_path: Path) -> None:
    (tmp_path / "losses.py").write_text("def loss_of(y):\n    return (y - 100).log().mean()\n")
    script = "import os, losses\nmodel = nn.Linear(4, 3)\nos.chdir('/')\ndef step(i):\n    return losses.loss_of(model(torch.ones(8, 4)))\n"
    script += "optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)\nstep(0).backward()\noptimizer.step()\n"
    (tmp_path / "train.py").write_text(HEAD + script)
    env = {**os.environ, "PYTHONPATH": str(Path(numscope.__file__).parent.parent)}
    command = [sys.executable, "-m", "numscope", "run", "--json", str(tmp_path / "found.json"), "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 3, done.stderr
    (finding,) = json.loads((tmp_path / "found.json").read_text())["findings"]
    assert (finding["culprit"]["file"], finding["culprit"]["line"]) == (str(tmp_path / "losses.py"), 2)
    assert finding["culprit"]["stack"][0][:2] == [str(tmp_path / "train.py"), HEAD.count("\n") + 7]


def test_scripts_line_is_a_caller_where_an_installed_library_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "looping.py").write_text("def train(model, x):\n    return model(x)\n")
    monkeypatch.syspath_prepend(str(installed))
    script = (
        "import looping\nclass Model(nn.Linear):\n    def forward(self, x):\n        return (super().forward(x) - 100).log()  # FAULT\n"
    )
    script += "model = Model(4, 3)\ndef step(i):\n    return looping.train(model, torch.ones(8, 4)).mean()\nLOOP\n"
    culprit = culprit_of(tmp_path, script)
    assert [(os.path.basename(file), function) for file, _, function, _ in culprit.stack] == [
        ("train.py", "step"),
        ("looping.py", "train"),
        ("train.py", "Model.forward" if sys.version_info >= (3, 11) else "forward"),
    ]
