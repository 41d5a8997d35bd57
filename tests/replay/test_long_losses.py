"""Losses of very many operations: graphs end as they do bare, training stays fast, and what is not watched is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.config.options import WatchOptions
from numscope.detect import detection
from numscope.probe import module
from numscope.probe.nodes import MOST_HOOKED, MOST_WALKED, graph
from numscope.replay.outside import MOST_IN_A_ROW, Outside
from numscope.replay.tape import OpTape
from numscope.scope.autowatch import AutoWatch

SCRIPT = """
import resource, sys, threading, torch, numscope
from torch import nn

WATCHED, *SHAPES = sys.argv[1:]
N = 16_000
if SHAPES != ["modules"]:  # of which the hooked ones take two thirds of the usual stack, however many there are
    N, STACK = 20_000, 2560 << 10  # a third of the operations on a third of the usual stack, in bytes
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    threading.stack_size(STACK)

class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.linear = nn.Identity(), nn.Linear(2, 2)
    def forward(self, x):
        x = self.linear(x)
        for _ in range(N):
            x = self.act(x + 1e-6)
        return x

class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0
    @staticmethod
    def backward(ctx, gradient):
        return gradient

def chain(x):
    for _ in range(N):
        x = x + 1e-6
    return x.sum()

def two_branches(x):
    y = x * 2
    for _ in range(N // 2):
        x, y = x + 1e-6, y + 1e-6
    return (x + y).sum()

def ladder(x):
    for _ in range(N // 2):
        x = x + x * 1e-6
    return x.sum()

def ends_in_a_function_of_its_own(x):
    for _ in range(N):
        x = x + 1e-6
    return Own.apply(x).sum()

def without_a_model(x):
    weight = torch.zeros(2, requires_grad=True)
    return chain(x + weight)

def train(shape):
    torch.manual_seed(0)
    model = Loop() if shape == "modules" else nn.Linear(2, 2)
    if WATCHED == "watched":
        numscope.watch(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss = model(torch.ones(1, 2))
        loss = loss.sum() if shape == "modules" else globals()[shape](loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(shape, loss.item().hex(), [p.sum().item().hex() for p in model.parameters()])

for shape in SHAPES:
    if shape == "thread":
        thread = threading.Thread(target=train, args=["chain"])
        thread.start()
        thread.join()
    else:
        train(shape)
"""
OUTSIDE = ["chain", "two_branches", "ladder", "ends_in_a_function_of_its_own", "without_a_model", "thread"]


def told(how: str, shapes: list[str], folder: Path) -> str:
    file = folder / "train.py"
    file.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(file), how, *shapes], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    return told("bare", OUTSIDE, tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize("shape", [*OUTSIDE, "modules"])
def test_graph_of_very_many_operations_ends_as_it_does_bare(shape: str, bare: str, tmp_path: Path) -> None:
    number = 2 * OUTSIDE.index(shape) if shape in OUTSIDE else 0  # each prints two lines
    expected = bare.splitlines()[number : number + 2] if shape in OUTSIDE else told("bare", [shape], tmp_path).splitlines()
    assert told("watched", [shape], tmp_path).splitlines() == expected


def test_walk_over_a_graph_has_an_end() -> None:
    x = torch.zeros(1, requires_grad=True) * 1
    for _ in range(2 * MOST_WALKED):
        x = x + 1
    assert sum(1 for _ in graph([x])) == MOST_WALKED


def train(loss_of: Callable[[Tensor, int], Tensor], steps: int = 3) -> AutoWatch:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with AutoWatch(WatchOptions()) as auto:
        for step in range(steps):
            loss_of(model(torch.ones(2, 4)).mean(), step).backward()
            optimizer.step()
            optimizer.zero_grad()
    return auto


NEAR = [(10, 0, 100), (1023, 2, 100), (1024, 0, 100), (1025, 2, 100), (2500, 0, 100)]
FAR = [(at, step, MOST_IN_A_ROW) for at, step in ((10, 2), (MOST_IN_A_ROW - 10, 0))]


@pytest.mark.parametrize(("at", "step", "after"), NEAR + FAR)
def test_bad_operation_of_a_long_loss_is_named(at: int, step: int, after: int) -> None:
    def loss_of(x: Tensor, now: int) -> Tensor:
        for number in range(at + after if now == step else at):
            if number == at and now == step:
                x = (x * 0 - 1).log()  # HERE
            x = x + 1e-6
        return x

    with pytest.raises(numscope.NonFiniteError) as caught:
        train(loss_of)
    culprit = caught.value.finding.culprit
    assert caught.value.finding.step == step
    assert culprit is not None
    here = next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith("  # HERE"))
    assert (culprit.op, culprit.line) == ("aten.log", here)


def test_bad_operation_past_the_first_ones_is_found_and_what_is_not_watched_is_said() -> None:
    def loss_of(x: Tensor, now: int) -> Tensor:
        for _ in range(MOST_IN_A_ROW + 100):
            x = x + 1e-6
        return (x * 0 - 1).log() if now == 1 else x

    with pytest.raises(numscope.NonFiniteError) as caught:
        train(loss_of)
    finding = caught.value.finding
    assert (finding.step, finding.site.slot, finding.culprit) == (1, "loss", None)
    assert "more than 4,096 operations in a row" in finding.replay and "Put the loop into an nn.Module" in finding.replay


def test_long_loss_that_is_finite_is_said_in_the_last_line_and_a_short_one_is_not() -> None:
    def long(x: Tensor, _: int) -> Tensor:
        for _ in range(MOST_IN_A_ROW + 100):
            x = x + 1e-6
        return x

    assert train(long).coverage.watched().gaps == ["operations past the first 4,096 in a row outside of Linear"]
    assert train(lambda x, _: x).coverage.watched().gaps == []


def test_gradients_of_many_calls_are_watched_up_to_a_bound_and_again_after_a_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_HOOKED == 8192  # docs/promises.md
    most = 1000
    for user in (module, detection):
        monkeypatch.setattr(user, "MOST_HOOKED", most)
    model = nn.Sequential(nn.Linear(2, 2), nn.Identity())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with AutoWatch(WatchOptions(on_nonfinite="warn")) as auto:
        total = torch.zeros(())
        for _ in range(most // 3 + 10):
            total = total + model(torch.ones(1, 2)).sum()
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        assert auto.coverage.watched().gaps == ["gradients of outputs in Sequential past the first 1,000 calls before a backward"]
        (model(torch.ones(1, 2)) * 0).sum().sqrt().backward()
        optimizer.step()
    (finding,) = auto.coverage.findings
    assert finding.site.slot == "grad output" and finding.culprit is not None and finding.culprit.op == "aten.sqrt_backward"


def test_long_losses_are_written_down_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12,000 operations a step 4,096 are noted, and records are made of none while all is finite."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    noted, recorded = [0], [0]
    pause, put = Outside.pause, OpTape.add
    monkeypatch.setattr(Outside, "pause", lambda self: (noted.__setitem__(0, noted[0] + getattr(self._mode, "num", 0)), pause(self))[1])
    monkeypatch.setattr(OpTape, "add", lambda self, record: (recorded.__setitem__(0, recorded[0] + 1), put(self, record))[1])
    with numscope.watch(model, optimizer=optimizer):
        for step in range(3):
            x = model(torch.ones(2, 4)).mean()
            for _ in range(12_000):
                x = x + 1e-6
            x.backward()
            model.zero_grad()
            optimizer.step()
            assert noted[0] <= (step + 1) * (MOST_IN_A_ROW + 10) and recorded[0] == 0, (step, noted, recorded)
    assert noted[0] > 3 * 3000
