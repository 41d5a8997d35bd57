"""Weights that are bad in one rank's shard before a step begins."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import numscope
from tests.distributed.ranks import RankPool


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x).relu())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def sharded(net: Net) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def told(finding: Any) -> dict[str, Any]:
    c = finding.culprit
    return {
        "step": finding.step, "rank": finding.rank, "phase": finding.phase.value, "replay": finding.replay, "site": str(finding.site),
        "note": finding.note,
        **({} if c is None else {"op": c.op, "module": c.module, "line": f"{c.file}:{c.line}", "code": c.code, "reason": c.reason.value,
        "detail": c.detail, "advice": c.advice, "stack": c.stack})}  # fmt: skip


def bad_weight(rank: int, how: str, bad_rank: int, bad_step: int) -> Any:
    if how == "empty":
        with torch.device("meta"):
            net = Net()
        model = sharded(net)
        model.to_empty(device="cpu")
        torch.manual_seed(1)
        for name, p in model.named_parameters():
            local = p.to_local() if hasattr(p, "to_local") else p
            with torch.no_grad():
                if name.startswith("blocks.1.down"):
                    if rank == bad_rank:
                        local.fill_(float("nan"))
                    else:
                        local.fill_(0.1)
                else:
                    local.normal_(0, 0.1)
    else:
        model = sharded(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    numscope.watch(model)
    try:
        for step in range(3):
            if how == "nan" and step == bad_step and rank == bad_rank:
                with torch.no_grad():
                    model.get_parameter("blocks.1.up.weight").to_local()[0, 0] = float("nan")
            optimizer.zero_grad()
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
    except numscope.NonFiniteError as error:
        return told(error.finding)
    return None


@pytest.mark.parametrize("bad_rank", [0, 1])
@pytest.mark.parametrize("how, bad_step", [("nan", 1), ("nan", 0), ("empty", 0)])
def test_experiment(ranks: RankPool, how: str, bad_rank: int, bad_step: int) -> None:
    for one in ranks.run(bad_weight, how, bad_rank, bad_step):
        print(one.value)
