"""Of several ranks that go bad in one step, all name the one that was first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from tests.distributed.ranks import RankPool
from tests.distributed.root import DIVISION, Root
from tests.distributed.wholes import batches
from tests.tape import line_of

Place = tuple[int, str]  # micro-batch, and where in it


def here(mark: str) -> tuple[str, int]:
    return __file__, line_of(mark, __file__)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, fault: str = "") -> Tensor:
        h = self.linear(x)
        if fault == "forward":
            h = h + torch.log(-h.abs())  # in forward
        if fault == "backward":
            h = Root.apply(h)
        return h


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.early, self.late = Layer(), Layer()

    def forward(self, x: Tensor, where: str = "") -> Tensor:
        layer, _, fault = where.partition(" ")
        return self.late(self.early(x, fault if layer == "early" else ""), fault if layer == "late" else "")


def both_go_bad(rank: int, places: tuple[Place, Place]) -> Any:
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    numscope.watch(model)
    micro_batch, where = places[rank]
    try:
        for step in range(3):
            optimizer.zero_grad()
            for k, x in enumerate(batches(rank, count=3)):
                bad = step == 1 and k == micro_batch
                loss = model(x, where if bad else "").square().mean()
                if bad and where == "loss":
                    loss = loss + torch.log(-loss)  # in the loss
                loss.backward()
            optimizer.step()
    except numscope.NonFiniteError as error:
        f = error.finding
        c = f.culprit
        return f.rank, f.step, f.batch, c and (c.file, c.line), c and c.module
    return None


@pytest.mark.parametrize(
    ("first", "second", "first_rank"),
    [
        *(((0, "early forward"), (0, "late forward"), rank) for rank in (0, 1)),  # which rank is the lower one says nothing
        ((0, "late forward"), (0, "loss"), 1),
        ((0, "loss"), (0, "late backward"), 0),
        ((0, "late backward"), (0, "early backward"), 1),
        ((0, "late forward"), (1, "early forward"), 0),
        *(((0, "late backward"), (2, "early forward"), rank) for rank in (0, 1)),  # a micro-batch before: its backward, too
        ((1, "loss"), (2, "early forward"), 1),
    ],
)
def test_all_ranks_name_the_one_that_was_first(ranks: RankPool, first: Place, second: Place, first_rank: int) -> None:
    told = ranks.run(both_go_bad, (first, second) if first_rank == 0 else (second, first))
    assert told[0].value == told[1].value
    rank, step, batch, place, module = told[0].value
    layer, _, fault = first[1].partition(" ")
    assert (rank, step, batch) == (first_rank, 1, 3 + first[0])
    assert place == (here("in the loss") if layer == "loss" else DIVISION if fault == "backward" else here("in forward"))
    assert module == layer or layer == "loss"
