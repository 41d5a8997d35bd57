"""What activation checkpointing computes again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD
from torch.utils.checkpoint import checkpoint

from numscope.records.alert import Alert
from tests.alerts.checks.silent import alerts_of, batches, one


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.p = nn.Linear(8, 8), nn.LayerNorm(8), 0.5

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(F.dropout(self.inner(x), self.p, self.training)).tanh()


class Checkpointed(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.first, self.block, self.last, self.options = nn.Linear(4, 8), Block(), nn.Linear(8, 3), options

    def forward(self, x: Tensor) -> Tensor:
        return self.last(checkpoint(self.block, checkpoint(self.block, self.first(x), **self.options), **self.options))


def found(model: Checkpointed, switch: bool = False) -> list[Alert]:
    optimizer = SGD(model.parameters(), lr=0.1)

    def training() -> None:
        for x, y in batches(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model.train()(x), y)
            model.block.train(not switch)
            loss.backward()
            optimizer.step()

    return [alert for alert in alerts_of(model, training) if alert.rule != "eval mode"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_random_numbers_that_are_not_kept_are_named(reentrant: bool) -> None:
    alert = one(found(Checkpointed(use_reentrant=reentrant, preserve_rng_state=False)), "recomputation differs")
    assert (alert.step, alert.layer, alert.tensor, alert.asks) == (0, "block.norm", "output", False)


def test_mode_that_changes_before_backward_is_named() -> None:
    assert one(found(Checkpointed(use_reentrant=True), switch=True), "recomputation differs").layer == "block.norm"


@pytest.mark.parametrize("reentrant", [True, False])
def test_same_numbers_are_left_alone(reentrant: bool) -> None:
    assert found(Checkpointed(use_reentrant=reentrant)) == []


@pytest.mark.parametrize("preserved", [True, False])
def test_micro_batches_are_each_held_against_their_own_forward(preserved: bool) -> None:
    """The first one makes fewer tensors than the second: a recurrent layer has no state yet."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.block, self.last = nn.LSTM(4, 8), Block(), nn.Linear(8, 2)

        def forward(self, x: Tensor, state: Any) -> Any:
            h, state = self.rnn(x, state)
            return self.last(checkpoint(self.block, h, use_reentrant=False, preserve_rng_state=preserved)), state

    torch.manual_seed(0)
    model = Recurrent()
    optimizer = SGD(model.parameters(), lr=0.01)

    def training() -> None:
        state = None
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(2):
                y, state = model(torch.randn(5, 3, 4), state)
                state = tuple(one.detach() for one in state)
                y.square().mean().backward()
            optimizer.step()

    assert [alert.rule for alert in alerts_of(model, training)] == ([] if preserved else ["recomputation differs"])


def test_layer_that_runs_on_other_inputs_in_a_backward_of_its_own_is_left_alone() -> None:
    layer = nn.Linear(4, 4)

    class Adjoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return layer(x)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            with torch.enable_grad():
                x = (ctx.saved_tensors[0] + 1).detach().requires_grad_()
                layer(x).backward(gradient)
            return x.grad

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.layer, self.last = nn.Linear(4, 4), layer, nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(Adjoint.apply(self.first(x)))

    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def training() -> None:
        for x, y in batches(3):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    assert "recomputation differs" not in {alert.rule for alert in alerts_of(model, training)}
