"""Copies of a model that a script makes for some steps, as meta-learning does: they go with their last use, and nobody asks them then."""

from __future__ import annotations

import contextlib
import copy
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import numscope
from numscope.config.options import WatchOptions
from numscope.probe import step as probe_step
from numscope.probe.step import MOST_TRAINED
from numscope.scope import autowatch, open_scopes
from numscope.scope.autowatch import AutoWatch


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Own(nn.Module):
    """Has a weight and a buffer of its own beside those of its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("seen", torch.zeros(()))
        self.parts = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return self.parts(x) * self.scale


def noted(net: nn.Module, gone: list[weakref.ref[object]]) -> nn.Module:
    fast = copy.deepcopy(net)
    gone += map(weakref.ref, (*fast.modules(), *fast.parameters()))
    if not autowatch._open:
        numscope.watch(fast)
    return fast


def adapted(net: nn.Module, gone: list[weakref.ref[object]]) -> tuple[torch.Tensor, ...]:
    """A copy after a step by hand: the gradients of its loss on other data."""
    fast = noted(net, gone)
    loss = fast(torch.randn(3, 4)).square().mean()
    with torch.no_grad():
        for p, gradient in zip(fast.parameters(), torch.autograd.grad(loss, list(fast.parameters())), strict=True):
            p -= 0.1 * gradient
    loss = fast(torch.randn(3, 4)).square().mean()
    return torch.autograd.grad(loss, list(fast.parameters()))


def evaluated(net: nn.Module, gone: list[weakref.ref[object]]) -> None:
    fast = noted(net, gone).eval()
    with torch.no_grad():
        fast(torch.randn(3, 4))


def left_without_backward(net: nn.Module, gone: list[weakref.ref[object]]) -> None:
    fast = noted(net, gone)
    fast(torch.randn(3, 4)).square().mean()


@pytest.mark.parametrize("use", [adapted, evaluated, left_without_backward], ids=lambda use: use.__name__)
@pytest.mark.parametrize("automatic", [False, True], ids=["watch", "run"])
def test_copy_is_gone_with_its_last_use(use: Callable[..., object], automatic: bool) -> None:
    net, gone = Own(), list[weakref.ref[object]]()
    with AutoWatch(WatchOptions()) if automatic else contextlib.nullcontext():
        for _ in range(3):
            use(net, gone)
            assert not [type(left) for ref in gone if (left := ref()) is not None]
            assert not open_scopes.live()


def test_what_a_step_asks_does_not_grow_with_the_copies_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [0]
    before = probe_step.Step.before_backward

    def counted(step: probe_step.Step, roots: list[torch.Tensor]) -> None:
        asked[0] += 1
        before(step, roots)

    monkeypatch.setattr(probe_step.Step, "before_backward", counted)
    net, numbers = Own(), []
    optimizer = torch.optim.Adam(net.parameters())
    with AutoWatch(WatchOptions()):
        for _ in range(8):
            was = asked[0]
            for _ in range(4):
                for p, gradient in zip(net.parameters(), adapted(net, []), strict=True):
                    p.grad = gradient
            optimizer.step()
            numbers.append(asked[0] - was)
    assert numbers[1:] == [numbers[1]] * 7


def test_copies_that_optimizers_train_are_few() -> None:
    """Their watches keep them until the collector comes: a model that a script's function has trained is judged at the script's end."""
    net, gone = Own(), list[weakref.ref[object]]()
    with AutoWatch(WatchOptions()) as auto:
        for _ in range(MOST_TRAINED + 4):
            fast = copy.deepcopy(net)
            gone.append(weakref.ref(fast))
            optimizer = torch.optim.SGD(fast.parameters(), lr=0.1)
            for _ in range(2):
                optimizer.zero_grad()
                fast(torch.randn(3, 4)).square().mean().backward()
                optimizer.step()
            del fast, optimizer
        assert sum(ref() is not None for ref in gone) <= MOST_TRAINED
    assert auto.coverage.watched().steps == 2


def test_bad_gradient_in_a_copy_is_found_with_its_operation(capfd: pytest.CaptureFixture[str]) -> None:
    net = Own()
    with pytest.raises(numscope.NonFiniteError) as caught, AutoWatch(WatchOptions()):
        for number in range(3):
            fast = copy.deepcopy(net)
            loss = (fast(torch.randn(3, 4)).square().mean() - (1e9 if number == 2 else 0)).sqrt()
            torch.autograd.grad(loss, list(fast.parameters()))
            del fast, loss
    culprit = caught.value.finding.culprit
    assert culprit is not None and culprit.op == "aten.sqrt"
