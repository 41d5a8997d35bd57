"""Converted layers on ranks: DDP, FSDP2, shared amaxes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from numscope.precision import DelayedScaling, convert, states
from numscope.precision.gemm.recipes import CurrentScaling
from tests.distributed.ranks import RankPool


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


def batch(seed: int) -> Tensor:
    return (1 + seed % 2) * torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))


def scales(net: nn.Module) -> list[float]:
    return [float(h.scale) for state in states(net).values() for _, h in sorted(state.histories.items())]


def train(net: nn.Module, seeds: list[int], steps: int = 3) -> list[float]:
    """Each step a batch of its own for each rank."""
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for step in range(steps):
        optimizer.zero_grad()
        for seed in seeds:
            net(batch(10 * step + seed)).square().sum().backward()
        optimizer.step()
    return scales(net)


def ddp(rank: int, recipe: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    net = DistributedDataParallel(convert(model(), recipe))
    found = train(net, [rank])
    return found, [p.detach() for p in net.parameters()]


def test_ddp_shares_amaxes_and_weights_stay_the_same(ranks: RankPool) -> None:
    first, second = (told.value for told in ranks.run(ddp, DelayedScaling()))
    assert first[0] == second[0] and len(first[0]) == 6
    assert all(torch.equal(p, q) for p, q in zip(first[1], second[1], strict=True))


def test_without_reduce_amax_each_rank_has_its_own_scales(ranks: RankPool) -> None:
    first, second = (told.value for told in ranks.run(ddp, DelayedScaling(reduce_amax=False)))
    assert first[0] != second[0]


def fsdp(rank: int, recipe: Any, reshard: bool, convert_first: bool) -> Any:
    from torch.distributed.fsdp import fully_shard

    net = model()
    if convert_first:
        convert(net, recipe)
    for layer in (net[0], net[2]):
        fully_shard(layer, reshard_after_forward=reshard)
    fully_shard(net)
    if not convert_first:
        convert(net, recipe)
    found = train(net, [rank])
    kept = sum(len(state.kept_weights) for state in states(net).values())
    return found, [p.full_tensor().detach() for p in net.parameters()], kept


@pytest.mark.parametrize("convert_first", [True, False])
@pytest.mark.parametrize("reshard", [True, False])
def test_fsdp2_trains_as_ddp_does(ranks: RankPool, reshard: bool, convert_first: bool) -> None:
    expected = ranks.run(ddp, DelayedScaling())[0].value
    for told in ranks.run(fsdp, DelayedScaling(), reshard, convert_first):
        found, weights, kept = told.value
        assert found == pytest.approx(expected[0], rel=1e-5)
        for got, want in zip(weights, expected[1], strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
        assert kept == 0, "codes of a gathered weight would undo the sharding"


def loaded(rank: int) -> bool:
    """A weight that is changed in its shards without an optimizer is seen by the next forward."""
    from torch.distributed.fsdp import fully_shard

    net = fully_shard(convert(nn.Sequential(nn.Linear(8, 8)), "current"))
    net(batch(0)).sum().backward()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(0)
    return bool((net(batch(0)) == 0).all())


def test_fsdp2_sees_weights_that_changed_in_their_shards(ranks: RankPool) -> None:
    assert all(told.value for told in ranks.run(loaded))


def uneven(rank: int) -> list[float]:
    """One layer runs on one rank only."""
    net = convert(nn.ModuleList(nn.Linear(8, 8) for _ in range(2)), DelayedScaling())
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    y = net[0](batch(rank))
    (net[1](y) if rank else y).sum().backward()
    optimizer.step()
    return scales(net)


def test_layer_that_one_rank_did_not_run_keeps_no_rank_waiting(ranks: RankPool) -> None:
    first, second = (told.value for told in ranks.run(uneven))
    assert first == second and len(first) == 6


def by_several_optimizers(rank: int) -> list[int]:
    """One steps half of the model, another, which steps a third one, the rest."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = convert(model(), DelayedScaling())
    optimizers = [torch.optim.SGD(net[0].parameters(), 0.01), ZeroRedundancyOptimizer(net[2].parameters(), torch.optim.SGD, lr=0.01)]
    for seed in range(3):
        net(batch(seed + rank)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    return [h.num_steps for state in states(net).values() for h in state.histories.values()]


def test_several_optimizers_of_one_model_end_one_step_on_ranks_too(ranks: RankPool) -> None:
    assert [told.value for told in ranks.run(by_several_optimizers)] == [[3] * 6] * 2


def in_group(rank: int) -> list[float]:
    alone = [dist.new_group([r]) for r in range(2)][rank]
    return train(convert(model(), DelayedScaling(amax_group=alone)), [rank])


def test_amax_group_decides_who_shares(ranks: RankPool) -> None:
    first, second = (told.value for told in ranks.run(in_group))
    assert first != second


def current(rank: int, reduce: bool) -> float:
    seen: list[float] = []
    net = convert(nn.Linear(8, 8), CurrentScaling(reduce_amax=reduce))
    (state,) = states(net).values()

    def see(gemm: str, operand: str, x: Tensor, made: Any) -> None:
        if operand == "activation":
            seen.append(float(made.scale_inv))

    state.observer = see
    net(batch(rank))
    return seen[0]


@pytest.mark.parametrize("reduce", [True, False])
def test_current_scaling_shares_amaxes_where_the_recipe_says_so(ranks: RankPool, reduce: bool) -> None:
    first, second = (told.value for told in ranks.run(current, reduce))
    assert (first == second) is reduce
