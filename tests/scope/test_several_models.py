"""Models that are trained side by side: a step, a loss and a fault belong to those whose outputs they come from."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import numscope
from numscope.config.options import WatchOptions
from numscope.records.finding import Reason
from numscope.records.site import Phase
from numscope.scope.autowatch import AutoWatch
from numscope.scope.scope import Scope

Pair = tuple[tuple[nn.Module, torch.optim.Optimizer, Scope], tuple[nn.Module, torch.optim.Optimizer, Scope]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    def one(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Scope]:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        return model, torch.optim.SGD(model.parameters(), 0.1), numscope.watch(model, on_nonfinite="warn")

    found = one(0), one(1)
    yield found
    for _, _, scope in found:
        scope.close()


def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def test_steps_are_counted_for_each_model_though_both_forwards_come_first(pair: Pair) -> None:
    (a, of_a, scope_a), (b, of_b, scope_b) = pair
    for _ in range(20):
        x = torch.randn(5, 4)
        loss_a, loss_b = a(x).mean(), b(x).mean()
        update(of_a, loss_a)
        update(of_b, loss_b)
    assert len(scope_a._watch._detection.evidence.calls) == len(scope_b._watch._detection.evidence.calls) == 1  # nothing piles up
    scope_a.close()
    scope_b.close()
    assert (scope_a.step_number, scope_b.step_number) == (20, 20)


def test_loss_is_charged_to_the_model_that_its_gradient_reaches_and_its_line_named(pair: Pair) -> None:
    (a, of_a, scope_a), (b, of_b, scope_b) = pair
    for step in range(3):
        x = torch.randn(5, 4)
        out_a, out_b = a(x), b(x)
        loss_a = out_a.square().mean()
        bad = -torch.ones(()) if step == 2 else torch.ones(())
        loss_b = (out_b * 0 + bad).log().mean()  # FAULT
        update(of_b, loss_b)
        update(of_a, loss_a)
    assert scope_a.findings == []
    (finding, *_) = scope_b.findings
    assert finding.step == 2
    culprit = finding.culprit
    assert culprit is not None
    assert (culprit.op, culprit.phase, culprit.reason) == ("aten.log", Phase.LOSS, Reason.DOMAIN)
    assert "# FAULT" in culprit.code


def test_gradient_that_another_model_s_backward_made_is_that_model_s() -> None:
    class Distance(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.center = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x - self.center).square().sum(-1).sqrt().mean()  # a center is met

    encoder, head = nn.Sequential(nn.Linear(4, 4), nn.Identity()), Distance()
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], 0.01)
    with numscope.watch(encoder, on_nonfinite="warn") as first, numscope.watch(head, on_nonfinite="warn") as second:
        for step in range(3):
            x = encoder(torch.randn(3, 4))
            update(optimizer, head(x * 0 + head.center.detach() if step == 2 else x))
    (finding, *_) = [*first.findings, *second.findings]
    assert finding.culprit is not None and finding.model == "Distance"
    assert (finding.culprit.phase, "a center is met" in finding.culprit.code) == (Phase.BACKWARD, True)


def test_what_a_model_hands_on_comes_before_what_the_loss_makes_of_it() -> None:
    class Cut(nn.Linear):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            out = super().forward(x)
            return out, (1 / (out - out.detach())).mean()  # penalty

    model = Cut(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with numscope.watch(model, on_nonfinite="warn") as scope:
        out, penalty = model(torch.ones(2, 4))
        update(optimizer, (out * 1e30).square().mean() + penalty)  # both are infinite
    assert scope.findings[0].culprit is not None and "# penalty" in scope.findings[0].culprit.code


def test_models_of_one_class_are_told_apart_in_findings_and_counts() -> None:
    class Net(nn.Linear):
        pass

    def play(number: int) -> None:
        first, second = (Net(4, 1) for _ in range(2))
        of_first, of_second = (torch.optim.SGD(net.parameters(), 0.1) for net in (first, second))
        for step in range(6):
            update(of_first, first(torch.ones(2, 4)).mean())
            if step < 3:
                update(of_second, second(torch.ones(2, 4)).mean() * (float("inf") if step == 2 and number else 1))

    with AutoWatch(WatchOptions(on_nonfinite="warn")) as auto:
        for number in range(2):  # the first two are gone as the others are made
            play(number)
            gc.collect()
    assert [finding.model for finding in auto.coverage.findings][:1] == ["Net_2"]
    told = auto.coverage.watched()
    assert (sorted(told.models), told.steps_of) == (["Net", "Net_2"], {"Net": 6, "Net_2": 3})


def test_watching_a_model_twice_is_said(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    (a, _, _), _ = pair
    with caplog.at_level("WARNING", "numscope"):
        numscope.watch(a).close()
    assert "watched already" in caplog.text


def test_weights_used_without_a_call_are_judged_step_by_step() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with numscope.watch(model, on_nonfinite="warn") as scope:
        for _ in range(5):
            update(optimizer, nn.functional.linear(torch.randn(3, 4), model.weight, model.bias).mean())
        assert not scope.closed  # the tool did not fail
    assert (scope.findings, scope.step_number) == ([], 5)
