"""A fault and its replay leave the run bitwise as it would have been with the fault and without a watch."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import numscope
from tests.harm.test_modules import MODELS, WIDTH, loss_of
from tests.harm.training import Notes, Run, Watch, assert_equal, bare, noted

pytestmark = pytest.mark.tried

FAULT = 2  # the step


class Faulty(nn.Module):
    """A model that, when told, gives a value that is not finite, or only a gradient that is not."""

    def __init__(self, inner: nn.Module, where: str) -> None:
        super().__init__()
        self.inner = inner
        self.where = where
        self.calls = 0  # what a user's module keeps for itself
        self.seen: list[int] = []
        self.last: Tensor | None = None
        self.fault = False

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        random.random()
        numpy.random.rand()
        y = self.inner(x)
        y = y[0] if isinstance(y, dict) else y
        y = F.dropout(y, 0.2)
        self.last = y
        if self.fault:
            y = y * (y - y).sqrt() if self.where == "backward" else y + (y.detach() - y.detach() - 1).log()
        return y


def warn(model: nn.Module) -> Any:
    return numscope.watch(model, on_nonfinite="warn")


def training(build: Callable[[], nn.Module], where: str, culprits: list[Any] | None = None, **autocast: Any) -> Run:
    def run(watch: Watch, notes: Notes) -> None:
        model = Faulty(build(), where)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        with watch(model) as scope:
            for step in range(FAULT + 3):
                optimizer.zero_grad()
                model.fault = step == FAULT and where != "optimizer"
                for _ in range(2):
                    with torch.autocast("cpu", torch.bfloat16, **{"enabled": False, **autocast}):
                        loss = loss_of(model(torch.randn(4, WIDTH)))
                    if where == "loss" and step == FAULT:
                        loss = loss * (-loss.detach()).log()
                    loss.backward()
                if where == "optimizer" and step == FAULT:
                    optimizer.param_groups[0]["eps"] = math.nan
                notes.state(model, optimizer)
                optimizer.step()
                notes.add("loss", loss)
                notes.add("calls", model.calls)
                notes.add("last", model.last)
                notes.state(model, optimizer)
            if culprits is not None and scope is not None:
                assert not scope.closed
                culprits.append(scope.findings)

    return run


NAMES = "buffers, old norms, parametrize, random numbers, checkpoint, checkpoint reentrant, script, in place, lstm, frozen".split(", ")
# Each model has one fault within it and one outside, which is done again without it: so that each pair is there.
CASES = [(name, where) for i, name in enumerate(NAMES) for where in (("forward", "backward")[i % 2], ("loss", "optimizer")[i // 2 % 2])]


@pytest.mark.parametrize(("name", "where"), CASES)
def test_fault_and_replay_leave_the_run_as_without_a_watch(name: str, where: str, capfd: Any) -> None:
    found: list[Any] = []
    run = training(MODELS[name], where, found)
    assert_equal(noted(run, warn), noted(run, bare))
    findings = found[0]
    assert findings and findings[0].step == FAULT, findings
    if (name, where) != ("checkpoint reentrant", "backward"):  # torch allows it only a backward that accumulates into the parameters
        assert findings[0].culprit is not None, findings[0].replay


def test_fault_and_replay_under_autocast_leave_the_run_as_without_a_watch(capfd: Any) -> None:
    run = training(MODELS["buffers"], "forward", enabled=True)
    assert_equal(noted(run, warn), noted(run, bare))


def test_replay_inside_the_users_autocast_leaves_nothing_in_its_cache(capfd: Any) -> None:
    def run(watch: Watch, notes: Notes) -> None:
        model = Faulty(nn.Linear(WIDTH, WIDTH), "forward")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with watch(model), torch.autocast("cpu", torch.bfloat16):
            for step in range(3):
                model.fault = step == 1
                loss = loss_of(model(torch.randn(4, WIDTH)))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                torch.clear_autocast_cache()
                notes.state(model, optimizer)
                if step == 1:
                    with torch.no_grad():
                        for p in model.parameters():
                            p.nan_to_num_(0.1)

    assert_equal(noted(run, warn), noted(run, bare))


def test_raised_finding_leaves_weights_as_they_were_and_the_run_can_go_on(capfd: Any) -> None:
    def run(watch: Watch, notes: Notes) -> None:
        model = Faulty(MODELS["buffers"](), "forward")
        optimizer = torch.optim.Adam(model.parameters())
        with watch(model) as scope:
            for step in range(5):
                optimizer.zero_grad()
                model.fault = step == FAULT
                loss_of(model(torch.randn(4, WIDTH))).backward()
                if scope is None:
                    if step != FAULT:
                        optimizer.step()
                else:
                    try:
                        optimizer.step()
                    except numscope.NonFiniteError as error:
                        assert step == FAULT and error.finding.culprit is not None
                notes.state(model, optimizer)

    assert_equal(noted(run, lambda model: numscope.watch(model)), noted(run, bare))
