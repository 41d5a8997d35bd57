"""Compiled under DDP and FSDP2: what goes wrong on one rank is found on all, as without torch.compile."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from tests.distributed.ranks import RankPool
from tests.tape import line_of


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor, least: Tensor) -> Tensor:
        h = self.first(x)
        return self.last(h + torch.log(h.square() + least))  # the logarithm


def fault_on_rank_1(rank: int, ways: tuple[str, ...]) -> list[Any]:
    found = []
    for way in ways:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model: Any = Net()
        if way.startswith("FSDP"):
            fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        elif not way.startswith("compiled"):
            model = DDP(model)
        scope = None if way.startswith("compiled") else numscope.watch(model)
        call = torch.compile(model, backend="aot_eager") if "compiled" in way else model
        if scope is None:
            call = DDP(call)
            scope = numscope.watch(call)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with contextlib.suppress(numscope.NonFiniteError):
            for step in range(3):
                x = torch.randn(3, 4, generator=torch.Generator().manual_seed(step + 10 * rank))
                call(x, torch.tensor(-1e6 if (rank, step) == (1, 2) else 1.0)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        scope.close()
        (finding,) = scope.findings
        culprit = finding.culprit
        assert culprit is not None, finding.replay
        found.append((finding.step, finding.rank, finding.phase.value, str(finding.site), culprit.op, culprit.file, culprit.line))
    return found


@pytest.mark.parametrize("ways", [("DDP", "DDP, compiled", "compiled, DDP"), ("FSDP2", "FSDP2, compiled")])
def test_fault_of_one_rank_is_found_as_without_compiling(ranks: RankPool, ways: tuple[str, ...]) -> None:
    for told in ranks.run(fault_on_rank_1, ways):
        assert [(one[0], one[1], one[-1]) for one in told.value] == [(2, 1, line_of("the logarithm", __file__))] * len(ways)
        assert len(set(told.value)) == 1
