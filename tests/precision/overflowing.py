"""A module that overflows in float16 by itself: what ``high_precision`` is for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

HALF = torch.float16


def grads(module: nn.Module) -> list[Tensor]:
    return [p.grad for p in module.parameters() if p.grad is not None]


class Overflowing(nn.Module):
    """Two finite factors whose product leaves float16, brought back by the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return (self.first(x) * self.second(x)) / 1e4


def overflowing() -> tuple[Overflowing, Tensor]:
    torch.manual_seed(0)
    module = Overflowing().half()
    return module, torch.randn(4, 8).half() * 2000
