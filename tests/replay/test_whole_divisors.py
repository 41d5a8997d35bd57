"""Quotients by tensors of integers, wherever these come from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.records.finding import Reason


class Divided(nn.Module):
    def __init__(self, quotient: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.quotient = nn.Linear(3, 3), quotient
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        return self.quotient(self.linear(x), self.count if counts.numel() == 1 else counts)


@pytest.mark.parametrize("counts", [torch.tensor([0, 2, 3]), torch.zeros(1, dtype=torch.int64)], ids=["argument", "buffer"])
@pytest.mark.parametrize(
    "quotient",
    [
        lambda h, n: h / n,
        lambda h, n: h / (n * 1),
        lambda h, n: h / n.bool(),
        lambda h, n: (h * 1).div_(n),
        lambda h, n: torch.div(h, n, rounding_mode="floor"),
        lambda h, n: h * n.reciprocal(),
        lambda h, n: h % n,
        lambda h, n: torch.fmod(h, n),
    ],
)
def test_a_zero_among_integers_is_the_reason(quotient: Callable[[Tensor, Tensor], Tensor], counts: Tensor) -> None:
    torch.manual_seed(0)
    model = Divided(quotient)
    with numscope.watch(model), pytest.raises(numscope.NonFiniteError) as raised:
        model(torch.randn(4, 3), counts).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    culprit = raised.value.finding.culprit
    assert culprit is not None and culprit.reason is Reason.DIVISION_BY_ZERO
    assert "a quotient by a 0 in" in culprit.detail and ("int64[" in culprit.detail or "bool[" in culprit.detail)
    assert "clamp_min" in culprit.advice
