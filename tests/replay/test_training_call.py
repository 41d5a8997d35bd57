"""A call that itself trains the model is not trained a second time by its replay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import numscope


class Manual(nn.Module):
    """As with Lightning's manual optimization."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1)
        self.num_steps = 0

    def forward(self, x: Tensor) -> Tensor:
        loss = self.layer(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return torch.log(-self.layer(x).square()).mean()


def test_replay_of_a_call_that_trains_changes_no_weight(capfd: Any) -> None:
    weights = []
    for watched in (True, False):
        torch.manual_seed(0)
        model = Manual()
        scope = numscope.watch(model, on_nonfinite="warn") if watched else None
        for _ in range(3):
            with torch.enable_grad():
                out = model(torch.ones(2, 4))
            out.backward()
            model.optimizer.step()
        if scope is not None:
            assert scope.findings
            scope.close()
        weights.append([p.detach() for p in model.parameters()] + [p.grad for p in model.parameters()])
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(*weights, strict=True))
