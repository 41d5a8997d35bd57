"""Weights that are bad in one rank's shard before a step begins."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import numscope
from tests.distributed.ranks import RankPool
from tests.tape import line_of


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x).relu())  # uses the weights


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.head(x)  # uses the head
        return y


def sharded(net: Net, how: str = "") -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    options: dict[str, Any] = {
        "mixed precision": {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)},
        "offloaded": {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
        "kept gathered": {"reshard_after_forward": False},
    }.get(how, {})
    for block in net.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(net, mesh=mesh, **options)


def trained(rank: int, model: nn.Module, spoil: Callable[[int], object] = lambda step: None) -> Any:
    """The finding of a training, in which ``spoil`` is called before each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    numscope.watch(model)
    try:
        for step in range(5):
            spoil(step)
            optimizer.zero_grad()
            model(torch.randn(3, 4)).float().square().mean().backward()
            optimizer.step()
    except numscope.NonFiniteError as error:
        c = error.finding.culprit
        return error.finding.step, error.finding.rank, str(error.finding.site), None if c is None else (
            c.reason.value, c.op, c.module, c.line, c.detail, c.advice
        )  # fmt: skip
    return None


def shard_goes_bad(rank: int, how: str, name: str, bad_rank: int, bad_step: int) -> Any:
    model = sharded(Net(), how)

    def spoil(step: int) -> None:
        if (rank, step) == (bad_rank, bad_step):
            with torch.no_grad():
                model.get_parameter(name).to_local().view(-1)[0] = float("nan")  # type: ignore[attr-defined]

    return trained(rank, model, spoil)


WRITTEN = "Check what wrote it last: an earlier update (its gradients and learning rate), a loaded checkpoint, or the script itself."


@pytest.mark.parametrize(
    "how, name, bad_rank, bad_step",
    [
        ("", "blocks.1.up.weight", 1, 0),
        ("", "blocks.0.down.bias", 1, 1),
        ("", "head.weight", 0, 1),
        ("mixed precision", "blocks.1.up.weight", 1, 1),
        ("kept gathered", "blocks.0.up.weight", 0, 1),
        ("offloaded", "blocks.1.up.weight", 1, 1),
    ],
)
def test_shard_that_is_bad_before_the_step_is_a_bad_parameter_at_the_line_that_uses_it(
    ranks: RankPool, how: str, name: str, bad_rank: int, bad_step: int
) -> None:
    told = ranks.run(shard_goes_bad, how, name, bad_rank, bad_step)
    assert told[0].value == told[1].value
    step, rank, site, culprit = told[0].value
    module, _, slot = name.rpartition(".")
    assert (step, rank) == (bad_step, bad_rank)
    assert site == f"{module} (Linear) {slot}"
    line = line_of("uses the head" if module == "head" else "uses the weights", __file__)
    num_elements = Net().get_parameter(name).numel() // 2
    assert culprit == (
        "bad parameter", "aten.addmm", module, line, f"{name} held 1 nan of {num_elements} elements before this step.", WRITTEN
    )  # fmt: skip


def never_initialized(rank: int, bad_ranks: tuple[int, ...], whole: bool) -> Any:
    with torch.device("meta"):
        net = Net()
    model = sharded(net)
    model.to_empty(device="cpu")
    for name, p in model.named_parameters():
        forgotten = (whole or name.startswith("blocks.1.down")) and rank in bad_ranks
        with torch.no_grad():
            p.to_local().fill_(float("nan") if forgotten else 0.1)  # type: ignore[attr-defined]  # as uninitialized memory may hold
    return trained(rank, model)


@pytest.mark.parametrize("bad_ranks, whole", [((1,), False), ((0, 1), False), ((0, 1), True)])
def test_shard_never_initialized_after_to_empty(ranks: RankPool, bad_ranks: tuple[int, ...], whole: bool) -> None:
    told = ranks.run(never_initialized, bad_ranks, whole)
    assert told[0].value == told[1].value
    step, rank, _, (reason, op, module, line, detail, advice) = told[0].value
    name = "head" if whole else "blocks.1.down"  # what the root owns is gathered first
    assert (step, rank, reason, module, op) == (0, bad_ranks[0], "bad parameter", name, "aten.addmm")
    assert line == line_of("uses the head" if whole else "uses the weights", __file__)
    assert detail.startswith(f"{name}.") and detail.endswith(" elements before this step.") and "to_empty()" in advice


def uneven(rank: int) -> Any:
    """Three rows over two ranks: the second rank's shard is padded with memory that nobody writes."""
    net = Net()
    net.head = nn.Linear(4, 3)
    return trained(rank, sharded(net))


def test_padding_of_uneven_shards_is_nobodys_fault(ranks: RankPool) -> None:
    assert [told.value for told in ranks.run(uneven)] == [None, None]


def script_writes_bad_weights(rank: int, how: str, bad_rank: int) -> Any:
    """Weights of one rank, or an average of them, are made bad by an operation of the script's between two steps."""
    torch.manual_seed(rank)
    net = Net()
    model = nn.parallel.DistributedDataParallel(net)
    average = copy.deepcopy(net)

    def spoil(step: int) -> None:
        if (rank, step) != (bad_rank, 2):
            return
        with torch.no_grad():
            if how == "weight":
                net.head.weight.log_()  # writes a bad weight
            else:
                average.head.weight.lerp_(net.head.weight.log(), 0.1)  # writes a bad average

    return trained(rank, model, spoil)


@pytest.mark.parametrize(("how", "bad_rank"), [("weight", 0), ("average", 1)])
def test_what_one_rank_writes_between_two_steps_stops_all_of_them_together(ranks: RankPool, how: str, bad_rank: int) -> None:
    told = ranks.run(script_writes_bad_weights, how, bad_rank)
    assert told[0].value == told[1].value
    step, rank, _, (reason, op, _, line, _, _) = told[0].value
    assert (step, rank, reason, line) == (2, bad_rank, "argument outside the function's domain", line_of(f"writes a bad {how}", __file__))
    assert op.startswith("aten.log")
