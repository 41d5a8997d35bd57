"""One call on all ranks: the same bits where all is well, and the rank, host and module where one has others; nobody waits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import numscope
from numscope.detect import across_ranks
from numscope.detect.across_ranks import LATER, RANKS_DIFFER, _unpacked
from tests.distributed.ranks import RankPool


class Net(nn.Module):
    def __init__(self, flips: bool, drop: float = 0.2) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)
        self.drop, self._flips, self.offset = nn.Dropout(drop), flips, 0

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        h = self.norm(self.first(x)) + self.offset
        if self._flips:
            with torch.no_grad():
                h.view(-1)[3:4].view(torch.int32).bitwise_xor_(1)
        return self.last(self.drop(h)) * scale


def trained(rank: int, bad: int, kind: str = "") -> tuple[list[Any], list[str], bytes]:
    torch.manual_seed(0)
    model = Net(flips=rank == bad)
    wrapped = DistributedDataParallel(model) if kind != "apart" else model
    if kind == "apart" and rank == 1:
        with torch.no_grad():
            model.last.bias += 1
    if kind == "offset":
        model.offset = rank
    if kind == "large":
        across_ranks.MOST_BYTES = 10
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    said: list[str] = []
    torch.manual_seed(rank)
    with pytest.MonkeyPatch.context() as patch, numscope.watch(wrapped, check="rank:at=1") as scope:
        patch.setattr("numscope.detect.experiments.log.log", lambda level, text, *more: said.append(text % more))
        for step in range(LATER + 6):
            wrapped(torch.randn(4 + rank, 8), scale=1.5).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == LATER + 2:
                dist.barrier()  # all have left their sums: the first rank looks at the next step
    across_ranks.MOST_BYTES = 8 << 20
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return [(a.step, a.layer, a.tensor, a.evidence["ranks"], a.text, a.asks) for a in scope.alerts if a.rule == RANKS_DIFFER], said, weights


def bare(rank: int) -> bytes:
    torch.manual_seed(0)
    model = Net(flips=False)
    wrapped, optimizer = DistributedDataParallel(model), torch.optim.SGD(model.parameters(), 1e-3)
    torch.manual_seed(rank)
    for _ in range(LATER + 6):
        wrapped(torch.randn(4 + rank, 8), scale=1.5).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


def test_ranks_of_equal_bits_are_left_alone_and_train_to_the_same_bits(ranks: RankPool) -> None:
    both = [told.value for told in ranks.run(trained, -1)]
    assert [alerts for alerts, _, _ in both] == [[], []] and not any(said for _, said, _ in both)
    assert [weights for _, _, weights in both] == [told.value for told in ranks.run(bare)]


def test_of_four_ranks_the_one_with_other_bits_is_named(four_ranks: RankPool) -> None:
    told = [told.value[0] for told in four_ranks.run(trained, 2)]
    [(step, layer, tensor, odd, text, asks)] = told[0]
    assert (step, layer, tensor, odd, asks) == (1 + LATER, "drop", "activation", [2], True)
    assert text == "of 4 ranks that did the same call with the same weights, rank 2 has other bits from here on (forward)."
    assert told[1:] == [[], [], []]


def test_what_modules_of_ranks_differ_in_is_named_as_the_cause(ranks: RankPool) -> None:
    [(step, layer, tensor, _, text, asks)] = ranks.run(trained, -1, "offset")[0].value[0]
    assert (step, layer, tensor, asks) == (1 + LATER, "drop", "activation", True)
    assert text == (
        "of 2 ranks that did the same call with the same weights, ranks 0, 1 have different bits from here on (forward); "
        "their modules differ in offset."
    )


def test_ranks_of_other_weights_are_not_compared(ranks: RankPool) -> None:
    assert [told.value[0] for told in ranks.run(trained, 1, "apart")] == [[], []]


def packed_view(rank: int) -> tuple[int, bool]:
    data, model, packed = torch.randn(1 << 16, 8), Net(flips=False), list[bytes]()
    with pytest.MonkeyPatch.context() as patch, numscope.watch(model, check="rank:at=0"):
        patch.setattr("numscope.detect.across_ranks.Bulletin.put", lambda self, step, note, details=b"": packed.append(details))
        model(data[:4]).mean().backward()
    return (len(packed[0]), torch.equal(_unpacked(packed[0], model)[0][0], data[:4])) if rank == 0 else (0, True)


def test_of_a_view_of_much_memory_only_its_elements_go_over_the_store(ranks: RankPool) -> None:
    (size, is_same), _ = (told.value for told in ranks.run(packed_view))
    assert 0 < size < 10_000 and is_same


def test_arguments_that_are_too_large_are_said(ranks: RankPool) -> None:
    first, second = (told.value for told in ranks.run(trained, 1, "large"))
    assert first[0] == second[0] == []
    assert any(
        "not compared with other ranks: the arguments are more than tensors and plain values, or more than" in line for line in first[1]
    )
