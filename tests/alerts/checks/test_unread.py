"""Attributes that nothing reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer

from tests.alerts.checks.silent import alerts_of, one

Write = Callable[[nn.Module, Optimizer], Any]


class Own(SGD):
    """An optimizer that keeps its rate as an attribute as well."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.lr = 7.0


def texts_of(write: Write, kind: type[Optimizer] = SGD) -> list[Any]:
    model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 4))
    optimizer = kind(model.parameters(), lr=1e-3)  # type: ignore[call-arg]
    write(model, optimizer)

    def training() -> None:
        for step in range(3):
            torch.manual_seed(step)
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(6, 5)), torch.randint(4, (6,))).backward()
            optimizer.step()

    return alerts_of(model, training)


@pytest.mark.parametrize(
    ("write", "what", "asks"),
    [
        (lambda model, _: setattr(model[2], "requires_grad", False), "2.requires_grad = False", True),
        (lambda model, _: setattr(model, "requires_grad", False), "Sequential.requires_grad = False", True),
        (lambda model, _: setattr(model[0].weight, "requires_grads", False), "0.weight.requires_grads", False),
        (lambda _, optimizer: setattr(optimizer, "lr", 1e-5), "optimizer.lr = 1e-05", False),
        (lambda _, optimizer: setattr(optimizer, "momentum", 0.9), "optimizer.momentum = 0.9", False),
    ],
)
def test_attribute_that_nothing_reads_is_named(write: Write, what: str, asks: bool) -> None:
    alert = one(texts_of(write), "setting without effect")
    assert alert.text.startswith(f"{what} has no effect: nothing reads this attribute of ")
    assert alert.asks == asks


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (lambda model, _: model[2].requires_grad_(False), SGD),
        (lambda model, _: (setattr(model[2], "requires_grad", False), model[2].requires_grad_(False)), SGD),
        (lambda _, optimizer: optimizer.param_groups[0].update(lr=1e-5), SGD),
        (lambda _, optimizer: setattr(optimizer, "lr", 1e-3), SGD),  # what its groups have too
        (lambda _, optimizer: None, Own),
    ],
)
def test_what_is_read_is_left_alone(write: Write, kind: type[Optimizer]) -> None:
    assert texts_of(write, kind) == []
