"""Losses that never change."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tests.alerts.checks.silent import Net, alerts_of, batches, line_of, train


def test_loss_over_a_dimension_of_one_is_asked_about() -> None:
    model = nn.Linear(4, 1)
    optimizer = SGD(model.parameters(), lr=0.1)

    def one_class() -> None:
        for x, y in batches(30):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), 0 * y)
            loss.backward()  # of zero
            optimizer.step()

    alert = next(a for a in alerts_of(model, one_class) if a.rule == "constant loss")
    assert (alert.step, alert.value, alert.asks) == (20, 0.0, True)
    assert alert.evidence["line"] == line_of(test_loss_over_a_dimension_of_one_is_asked_about, "of zero")


def test_saturated_loss_is_named() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def clamp() -> None:
        for x, y in batches(30):
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) + 0.0).clamp(min=50.0).backward()
            optimizer.step()

    assert ("constant loss", 50.0, True) in [(a.rule, a.value, a.asks) for a in alerts_of(model, clamp)]


@pytest.mark.parametrize("constant", ["first", "both"])
def test_losses_of_all_micro_batches_count(constant: str) -> None:
    """They run through other parts, so that the rows of the first one are another's in the second."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = SGD(model.parameters(), lr=0.1)

    def in_two() -> None:
        for x, y in batches(30):
            optimizer.zero_grad()
            F.cross_entropy(model[2](x), 0 * y).backward()
            z = model(x)
            (F.cross_entropy(z, 0 * y) if constant == "both" else z.square().mean()).backward()
            optimizer.step()

    assert ("constant loss" in [a.rule for a in alerts_of(model, in_two)]) == (constant == "both")


def test_loss_that_moves_is_left_alone() -> None:
    model = Net()
    assert alerts_of(model, lambda: train(model, SGD(model.parameters(), lr=1e-3), 60)) == []


def test_loss_of_two_equal_logits_is_said_to_be_one() -> None:
    model = nn.Linear(4, 1)
    optimizer = SGD(model.parameters(), lr=0.1)

    def compare() -> None:
        for x, _ in batches(30):
            optimizer.zero_grad()
            F.softplus(model(x).detach() - model(x)).mean().backward()
            optimizer.step()
            with torch.no_grad():
                model.bias += 1.0

    alert = next(a for a in alerts_of(model, compare) if a.rule == "constant loss")
    assert alert.advice.startswith("It is ln 2")


def test_lbfgs_that_has_arrived_is_left_alone() -> None:
    """Its loss and its weights are the same in each step."""
    torch.manual_seed(0)
    model, x = nn.Linear(4, 1), torch.randn(8, 4)
    y = x @ torch.ones(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    def training() -> None:
        for _ in range(220):
            optimizer.step(closure)

    assert alerts_of(model, training) == []
