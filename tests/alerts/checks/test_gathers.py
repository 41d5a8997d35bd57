"""Collectives of the script's own: features that ranks gather for a loss, gradients that they sum up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as with_gradient
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from tests.distributed.ranks import RankPool

BATCH = 4


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 8), nn.Linear(4, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.one(x), self.other(x)


class Whole(torch.autograd.Function):
    """A gather with a derivative of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        every = torch.stack(gradients)
        dist.all_reduce(every)
        return every[dist.get_rank()]


def gathered(x: Tensor, how: str) -> Tensor:
    rank, num = dist.get_rank(), dist.get_world_size()
    if how == "with gradient":
        return torch.cat(with_gradient.all_gather(x))  # type: ignore[no-untyped-call]
    if how == "own derivative":
        return torch.cat(Whole.apply(x))  # type: ignore[no-untyped-call]
    if how in ("one tensor", "one tensor, put back"):
        whole = torch.empty(num * len(x), x.shape[1])
        dist.all_gather_into_tensor(whole, x)
        if how == "one tensor, put back":
            whole[rank * len(x) : (rank + 1) * len(x)] = x
        return whole
    parts = [torch.zeros_like(x) for _ in range(num)]
    dist.all_gather(parts, x.detach() if how == "detached" else x)
    if how == "put back":
        parts[rank] = x
    if how == "own first":  # labels are those of the diagonal then
        parts = [x, *(part for i, part in enumerate(parts) if i != rank)]
    whole = torch.stack(parts).flatten(0, 1) if how == "stacked" else torch.cat(parts)
    return x if how == "for a metric" else whole


def contrast(rank: int, how: str) -> list[tuple[str, bool, str]]:
    torch.manual_seed(0)
    model = DDP(Pair(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    with numscope.watch(model) as scope:
        for _ in range(5):
            one, other = model(torch.randn(BATCH, 4))
            whole = gathered(other, how)
            shift = 0 if how in ("for a metric", "own first") else rank * BATCH
            loss = F.cross_entropy(one @ whole.T, torch.arange(BATCH) + shift) + other.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dist.barrier()
    return [(a.text.partition(" at ")[2].partition(",")[0], a.asks, a.advice) for a in scope.alerts if a.rule == "gather without gradient"]


@pytest.mark.parametrize("how", ["cat", "stacked", "one tensor"])
def test_a_gather_without_gradient_is_asked_about(ranks: RankPool, how: str) -> None:
    """kohjingyu/fromage #33, huggingface/accelerate #1154."""
    for (alert,) in [told.value for told in ranks.run(contrast, how)]:
        at, asks, advice = alert
        assert at.startswith("test_gathers.py:") and asks and "torch.distributed.nn.functional.all_gather" in advice


@pytest.mark.parametrize(
    "how", ["with gradient", "own derivative", "put back", "one tensor, put back", "own first", "detached", "for a metric"]
)
def test_other_gathers_are_silent(ranks: RankPool, how: str) -> None:
    assert [told.value for told in ranks.run(contrast, how)] == [[], []]


def reduce(rank: int, how: str) -> list[tuple[str, bool]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[2].weight = model[0].weight  # tied
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    with numscope.watch(model) as scope:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(BATCH, 4)).square().mean().backward()
            for module in model if how == "by module" else [model]:
                for p in module.parameters():
                    assert p.grad is not None
                    dist.all_reduce(p.grad)
                    p.grad /= dist.get_world_size()
                    if how == "maximum":
                        dist.all_reduce(p.grad, op=dist.ReduceOp.MAX)
            optimizer.step()
            dist.barrier()
    return [(a.text, a.asks) for a in scope.alerts if a.rule == "gradients reduced twice"]


def test_a_tied_gradient_that_is_reduced_twice_is_asked_about(ranks: RankPool) -> None:
    for ((text, asks),) in [told.value for told in ranks.run(reduce, "by module")]:
        assert asks and text.startswith("all_reduce at test_gathers.py:") and text.endswith("it becomes 2 times as large.")


@pytest.mark.parametrize("how", ["once", "maximum"])
def test_other_reductions_are_silent(ranks: RankPool, how: str) -> None:
    assert [told.value for told in ranks.run(reduce, how)] == [[], []]
