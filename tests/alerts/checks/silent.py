"""Small trainings that go wrong in silence, and what a watch says of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import numscope
from numscope.records.alert import Alert

Training = Callable[[], None]


class Net(nn.Module):
    """Two layers and a dropout."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(4, 8), nn.Dropout(dropout), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(torch.tanh(self.first(x))))


def batches(steps: int, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield torch.randn(16, 4, generator=generator), torch.randint(3, (16,), generator=generator)


def alerts_of(model: nn.Module, training: Training) -> list[Alert]:
    """What a watch that is on from before the training until its end has to say."""
    with numscope.watch(model, on_nonfinite="warn") as scope:
        training()
    assert not scope.fault
    return scope.alerts


def one(alerts: list[Alert], rule: str) -> Alert:
    """The only alert, which is of this rule."""
    assert [alert.rule for alert in alerts] == [rule], "\n".join(alert.line() for alert in alerts)
    return alerts[0]


def line_of(function: Callable[..., object], mark: str) -> str:
    """``file:line`` of the line in a function that ends with ``# mark``."""
    lines, start = inspect.getsourcelines(function)
    number = next(n for n, line in enumerate(lines, start) if line.rstrip().endswith(f"# {mark}"))
    return f"{Path(inspect.getsourcefile(function) or '').resolve()}:{number}"


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 6) -> None:
    """A training that is right."""
    for x, y in batches(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
