"""What a library computes for a module of the user's own is named at that module and its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_run import cli

LIBRARY = """
import torch
from torch import nn


class _PerturbFunc(nn.Module):
    def __init__(self, base_func):
        super().__init__()
        self.base_func = base_func

    def forward(self, t, y):
        return self.base_func(t, y)


def step(func, t, dt, y):
    k1 = func(t, y)
    k2 = func(t + dt, y + dt * k1)
    return y + dt * k2 / (k2 - k1).abs().sum()  # LIBRARY


def odeint(func, y, times):
    func = _PerturbFunc(func)
    for a, b in zip(times[:-1], times[1:]):
        y = step(func, a, b - a, y)
    return y


class NeuralODE(nn.Module):
    def __init__(self, vf):
        super().__init__()
        self.vf = vf

    def forward(self, y):
        return odeint(self.vf, y, torch.linspace(0, 1, 4))
"""
SCRIPT = """
import sys

sys.path.insert(0, "site-packages")
import solver
import torch
from torch import nn


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)
        self.fault = ""

    def forward(self, t, y):
        h = self.net(y)
        if self.fault == "field":
            h = torch.log(h * 0 - 1)  # FIELD
        return h * 0 + 1 if self.fault == "solver" else h


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.field, self.out = Field(), nn.Linear(4, 1)

    def forward(self, x):
        return self.out(solver.odeint(self.field, x, torch.linspace(0, 1, 4)))  # BLOCK


field = Field()
block = Block()
ode = solver.NeuralODE(field)
model, field, call = {
    "block": (block, block.field, block),
    "function": (field, field, lambda x: solver.odeint(field, x, torch.linspace(0, 1, 4))),
    "wrapper": (ode, field, ode),
}["%s"]
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range(4):
    field.fault = "%s" if i == 2 else ""
    optimizer.zero_grad()
    call(torch.randn(3, 4)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("form", "fault", "model", "culprit", "mark"),
    [
        ("block", "field", "Block", "aten.log (forward) in field", "FIELD"),
        ("function", "field", "Field", "aten.log (forward)", "FIELD"),
        ("wrapper", "field", "NeuralODE", "aten.log (forward) in vf", "FIELD"),
        ("block", "solver", "Block", "aten.div (forward)", "BLOCK"),
    ],
)
def test_fault_in_a_solver_is_named_at_the_users_own_module(
    tmp_path: Path, form: str, fault: str, model: str, culprit: str, mark: str
) -> None:
    package = tmp_path / "site-packages" / "solver"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(LIBRARY)
    script = SCRIPT % (form, fault)
    (tmp_path / "train.py").write_text(script)
    done = cli("run", "train.py", cwd=tmp_path, COLUMNS="400")
    assert done.returncode == 3, done.stderr
    line = next(n for n, text in enumerate(script.split("\n"), 1) if text.endswith(f"# {mark}"))
    assert f"Line     {tmp_path / 'train.py'}:{line}\n" in done.stderr
    assert f"Culprit  {culprit}\n" in done.stderr
    assert f"rank 0, {model}\n" in done.stderr
    assert ("It ran in " in done.stderr) == (fault == "solver")
    assert f"\nnumscope: watched {model}, 2 steps, " in done.stderr
