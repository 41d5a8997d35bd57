"""Ranks that cure the gradients of one step, all of them or one alone."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor, nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from tests.distributed.ranks import RankPool
from tests.distributed.root import Root
from tests.distributed.test_ddp import batches


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.is_bad = nn.Linear(4, 8), nn.Linear(8, 2), False

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.last(Root.apply(h) if self.is_bad else h)


def cured(rank: int, curing: tuple[int, ...]) -> Any:
    """Rank 1's backward is bad in step 2; the ranks of ``curing`` clean the reduced gradients before the optimizer gets them."""
    net = Net()
    model = DDP(net)
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    scope = numscope.watch(model)
    try:
        for step, x in enumerate(batches(rank)):
            net.is_bad = (rank, step) == (1, 2)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            if rank in curing:
                for p in model.parameters():
                    assert p.grad is not None
                    p.grad.nan_to_num_(0.0, 0.0, 0.0)
            optimizer.step()
    except numscope.NonFiniteError as error:
        return error.finding.step, error.finding.rank, error.finding.culprit and error.finding.culprit.op
    finally:
        scope.close()
    return [note.step for note in scope.contained if "used no bad gradient" in note.note]


def test_what_all_ranks_have_cured_is_a_note_of_the_rank_where_it_was(ranks: RankPool) -> None:
    assert [t.value for t in ranks.run(cured, (0, 1))] == [[], [2]]


@pytest.mark.parametrize("curing", [(0,), (1,)])
def test_what_one_rank_alone_has_cured_is_a_finding_of_all(ranks: RankPool, curing: tuple[int, ...]) -> None:
    """The other rank would train on with it; the culprit is on rank 1, whoever raised the alarm."""
    first, second = (t.value for t in ranks.run(cured, curing))
    assert first == second and first[:2] == (2, 1) and first[2] is not None
