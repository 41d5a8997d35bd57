"""Rows merged over real ranks are the rows of the whole tensors, whatever the parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

from numscope.distributed import agree
from numscope.distributed.reduce import Item, Reducer
from numscope.summary.dispatch import summarize
from tests.distributed.collector import DATA, Collector, train
from tests.distributed.ranks import RankPool, Told
from tests.distributed.wholes import MLP, batches, check, check_data, check_whole, writers

# ---- DDP


def ddp(rank: int) -> Any:
    model = MLP()
    wrapper = DDP(model)
    return train(Collector(model), wrapper, batches(rank, rows=3 + rank))


@pytest.mark.parametrize("world", [2, 4])
def test_ddp_data_is_joined_and_replicated_weights_count_once(ranks: RankPool, four_ranks: RankPool, world: int) -> None:
    told = (ranks if world == 2 else four_ranks).run(ddp)
    check_data(told, [range(world)], DATA)
    for key in ("up.weight|weight", "up.weight|wgrad", "norm.bias|wgrad"):
        check(told[1].value[0][key], told[1].value[1][key], 1)
        assert writers(told, key) == [0]


def ddp_inside(rank: int) -> Any:
    model = MLP()
    model.up, model.down = DDP(model.up), DDP(model.down)  # type: ignore[assignment]
    return train(Collector(model), model, batches(rank))


def test_ddp_within_the_model_is_found(ranks: RankPool) -> None:
    told = ranks.run(ddp_inside)
    check_data(told, [range(2)], ["up.module|output", "norm|activation", "down.module|gradient"])
    assert writers(told, "up.module.weight|weight") == [0]


def evaluating_alone_in_join(rank: int) -> Any:
    model = MLP()
    wrapper = DDP(model)
    collector = Collector(model, wrapper)
    with wrapper.join():
        for x in batches(rank, count=1 + rank):
            wrapper(x).square().mean().backward()
            collector.see_parameters()
            told = collector.reduce()
    return told


def test_within_join_each_rank_is_alone(ranks: RankPool) -> None:
    told = ranks.run(evaluating_alone_in_join)
    assert [t.value[0]["up|output"].ranks for t in told] == [1, 1]
    assert writers(told, "up|output") == [0, 1] and writers(told, "up.weight|weight") == [0]


# ---- FSDP2


def fsdp(rank: int, width: int, replicated: bool, root_owns_nothing: bool = False) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("r", "s")) if replicated else init_device_mesh("cpu", (world,))
    model = MLP(width)
    collector = Collector(model)
    for part in (model.up, model.norm, model.down) if root_owns_nothing else (model.up,):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return train(collector, model, batches(rank))


# 3 rows on 2 ranks are padded; with 1 row (or 3 on 4 ranks) some rank has no element.
@pytest.mark.parametrize(("world", "width"), [(2, 3), (2, 1), (4, 3), (4, 8)])
def test_fsdp2_shards_are_joined_uneven_ones_too(ranks: RankPool, four_ranks: RankPool, world: int, width: int) -> None:
    told = (ranks if world == 2 else four_ranks).run(fsdp, width, False)
    check_data(told, [range(world)], DATA)
    for key in ("up.weight|weight", "up.weight|wgrad", "up.bias|weight", "down.weight|wgrad", "norm.weight|weight"):
        check_whole(told, key, world, [range(world)])


@pytest.mark.parametrize("root_owns_nothing", [False, True])
def test_hybrid_sharding_joins_shards_and_counts_replicas_once(four_ranks: RankPool, root_owns_nothing: bool) -> None:
    told = four_ranks.run(fsdp, 3, True, root_owns_nothing)
    check_data(told, [range(4)], DATA)
    for key in ("up.weight|weight", "up.weight|wgrad", "down.bias|wgrad"):
        for rank in range(4):
            check(told[rank].value[0][key], told[rank].value[1][key], 2)
        assert writers(told, key) == [0]


# ---- tensor parallel


def tensor_parallel(rank: int, data_parallel: bool, sequence: bool, width: int = 8) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    model = MLP(width)
    collector = Collector(model)
    if data_parallel:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        tp = mesh["tp"]
    else:
        tp = init_device_mesh("cpu", (dist.get_world_size(),))
    plan: dict[str, Any] = {
        "up": ColwiseParallel(output_layouts=Shard(0) if sequence else Replicate()),
        "down": RowwiseParallel(output_layouts=Replicate(), input_layouts=Replicate()),
    }
    if sequence:
        plan["norm"] = SequenceParallel(sequence_dim=0)
        plan["down"] = RowwiseParallel(output_layouts=Replicate(), input_layouts=Shard(0))
    parallelize_module(model, tp, plan)
    if data_parallel:
        fully_shard(model.up, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    return train(collector, model, batches(mesh.get_local_rank("dp") if data_parallel else 0, rows=4))


@pytest.mark.parametrize(("world", "width", "sequence"), [(2, 8, False), (2, 6, True), (4, 6, False), (4, 8, True)])
def test_tensor_parallel_placements_decide(ranks: RankPool, four_ranks: RankPool, world: int, sequence: bool, width: int) -> None:
    told = (ranks if world == 2 else four_ranks).run(tensor_parallel, False, sequence, width)
    every = [range(world)]
    check_whole(told, "up|activation", 1, every)  # replicated
    check_whole(told, "up|output", world, every)  # sharded by columns
    check_whole(told, "up|gradient", world, every)
    check_whole(told, "down|activation", world, every)  # sharded by columns
    check_whole(told, "down|output", 1, every)  # summands, summed up
    for key in ("up.weight|weight", "up.weight|wgrad", "down.weight|weight", "down.weight|wgrad"):
        check_whole(told, key, world, every)
    check_whole(told, "down.bias|weight", 1, every)
    if sequence:
        check_whole(told, "norm|activation", world, every)
        check_whole(told, "norm|output", world, every)
        check_whole(told, "norm.weight|weight", 1, every)
        check_whole(told, "norm.weight|wgrad", 1, every)  # summands too
    assert not any(t.said for t in told)


def test_two_axes_each_do_their_part(four_ranks: RankPool) -> None:
    """FSDP2 over tensor parallelism: data-parallel groups are ranks 0 and 2, 1 and 3; tensor-parallel ones 0 and 1, 2 and 3."""
    told = four_ranks.run(tensor_parallel, True, False, 6)
    for key in ("norm|activation", "norm|output", "norm|gradient"):  # plain: over data parallelism alone
        check_data(told, [(0, 2), (1, 3)], [key])
    for key in ("up.weight|weight", "up.weight|wgrad", "down.weight|weight", "down.weight|wgrad"):  # sharded on both axes
        check_whole(told, key, 4, [range(4)])
    for key in ("down.bias|weight", "down.bias|wgrad"):  # replicated on one
        for rank in range(4):
            check(told[rank].value[0][key], told[rank].value[1][key], 2)
        assert writers(told, key) == [0]
    for key, ranks_merged in (("up|output", 4), ("down|activation", 4), ("up|activation", 2), ("down|output", 2)):
        parts = [part for rank in (0, 2) for part in told[rank].value[1][key]]
        for rank in range(4):
            check(told[rank].value[0][key], parts, ranks_merged)
        assert writers(told, key) == [0]


# ---- summands


def summands(rank: int, placement: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    part = torch.arange(4.0) - 2 * rank
    model = nn.Linear(2, 2)
    collector = Collector(model)
    if placement == "masked":
        from torch.distributed.tensor import Replicate, distribute_tensor
        from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

        table = nn.Embedding(4, 3)
        collector = Collector(nn.Sequential(table))
        parallelize_module(table, mesh, RowwiseParallel(input_layouts=Replicate()))
        out = table(distribute_tensor(torch.tensor([0, 3, 1]), mesh, [Replicate()]).to_local())
        return collector.refused, out.shape, list(collector.reduce()[0])
    whole = DTensor.from_local(part, mesh, [Partial(placement)], run_check=False)
    before = part.clone()
    collector.see("sum|output", whole, "data")
    assert whole.placements[0].is_partial() and torch.equal(part, before)
    return collector.reduce()


@pytest.mark.parametrize("how", ["sum", "avg", "max", "min"])
def test_summands_are_reduced_first_and_count_once(ranks: RankPool, how: str) -> None:
    told = ranks.run(summands, how)
    check_whole(told, "sum|output", 1, [range(2)])


def test_summands_that_only_their_operation_can_reduce_are_refused_with_a_reason(ranks: RankPool) -> None:
    for told in ranks.run(summands, "masked"):
        refused, shape, keys = told.value
        assert "_MaskPartial" in refused["0|output"] and "only the operation that made them can reduce" in refused["0|output"]
        assert shape == (3, 3)  # the model's own reduction still has its mask
        assert "0|output" not in keys


def summands_of_a_rank_that_does_not_come(rank: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial

    mesh = init_device_mesh("cpu", (2,))
    whole = DTensor.from_local(torch.ones(3), mesh, [Partial()], run_check=False)
    patience, agree.PATIENCE_S = agree.PATIENCE_S, 0.5
    try:
        collector = Collector(nn.Linear(2, 2))
        collector.see("a|output", whole, "data")
        if rank == 0:
            collector.see("b|output", whole, "data")
            collector.see("c|output", whole, "data")
        return collector.refused, collector.reduce()[0]
    finally:
        agree.PATIENCE_S = patience


def test_summands_of_which_a_rank_does_not_come_are_refused_nobody_hangs(ranks: RankPool) -> None:
    told = ranks.run(summands_of_a_rank_that_does_not_come)
    assert list(told[0].value[0]) == ["b|output", "c|output"]
    assert "not all of which observe it" in told[0].value[0]["b|output"]
    assert told[0].value[1]["a|output"].row == told[1].value[1]["a|output"].row


# ---- groups of the user's


def user_groups(rank: int) -> Any:
    model = MLP()
    wrapper = DDP(model)
    collector = Collector(model)
    low, high = dist.new_group([0, 1]), dist.new_group([2, 3])
    odd = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    collector.reducer.places.set_group(low if rank < 2 else high)
    collector.reducer.places.set_group(odd, "down")
    return train(collector, wrapper, batches(rank))


def test_users_group_is_for_all_layers_or_for_one(four_ranks: RankPool) -> None:
    told = four_ranks.run(user_groups)
    check_data(told, [(0, 1), (2, 3)], [key for key in DATA if not key.startswith("down")])
    for key in ("down|activation", "down|output", "down|gradient"):
        check_data(told, [(0, 2)], [key])
        check_data(told, [(1, 3)], [key])
    for group in ((0, 1), (2, 3)):  # parameters too, as the user says that their ranks' tensors belong together
        parts = [part for rank in group for part in told[rank].value[1]["up.weight|weight"]]
        for rank in group:
            check(told[rank].value[0]["up.weight|weight"], parts, 2)


def group_of_all_under_tensor_parallelism(rank: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))["tp"]
    collector = Collector(nn.Linear(2, 2))
    collector.reducer.places.set_group(dist.group.WORLD)
    data = torch.arange(6.0).reshape(2, 3) + 10 * (rank // 2)
    collector.see("sharded|output", distribute_tensor(data, mesh, [Shard(0)], src_data_rank=None), "data")
    collector.see("same|output", distribute_tensor(data, mesh, [Replicate()], src_data_rank=None), "data")
    return collector.reduce()


def test_users_group_that_holds_a_tensors_whole_mesh_counts_its_replicas_once(four_ranks: RankPool) -> None:
    told = four_ranks.run(group_of_all_under_tensor_parallelism)
    for key, count in (("sharded|output", 4), ("same|output", 2)):
        parts = [told[rank].value[1][key][0] for rank in (0, 2)]
        for rank in range(4):
            check(told[rank].value[0][key], parts, count)
        assert writers(told, key) == [0]


# ---- ranks that do not have the same layers


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: Tensor, expert: int) -> Tensor:
        return self.experts[expert](self.up(x))


def experts(rank: int, wanted: Sequence[Sequence[int]]) -> Any:
    model = Experts()
    wrapper = DDP(model, find_unused_parameters=True)
    collector = Collector(model)
    steps = []
    for step, x in enumerate(batches(rank, count=len(wanted))):
        wrapper(x, wanted[step][rank]).square().mean().backward()
        steps.append(collector.reduce())
    return steps


@pytest.mark.parametrize("wanted", [[(0, 0), (0, 1), (1, 1), (2, 0), (0, 0)], [(1, 0), (0, 1)], [(2, 2), (2, 1)]])
def test_layer_that_some_rank_does_not_run_is_merged_over_those_that_do(ranks: RankPool, wanted: Any) -> None:
    told = ranks.run(experts, wanted)
    for step, chosen in enumerate(wanted):
        for expert in range(3):
            key = f"experts.{expert}|output"
            those = [rank for rank in range(2) if chosen[rank] == expert]
            parts = [part for rank in those for part in told[rank].value[step][1][key]]
            assert [rank for rank in range(2) if key in told[rank].value[step][0]] == those
            for rank in those:
                check(told[rank].value[step][0][key], parts, len(those))
            assert [rank for rank in those if told[rank].value[step][0][key].writes] == those[:1]


def uneven_experts(rank: int) -> Any:
    """On two axes: a sharded tensor that only rank 0 and rank 3 have, and a group that a rank is drawn into by another's news alone."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    dp, tp = mesh.get_group("dp"), mesh.get_group("tp")
    reducer = Reducer(nn.Linear(2, 2), nn.Linear(2, 2), "test")
    reducer.places.adopt([dp, tp])  # as the parameters' mesh would make it know them
    items = [Item("expert", (tp, dp), summarize(torch.tensor([1.0 + rank])).to_row())] if rank in (0, 3) else []
    return [reducer.reduce(items) for _ in range(2)]


def test_parts_reach_all_who_have_some_by_way_of_ranks_that_have_none(four_ranks: RankPool) -> None:
    told = four_ranks.run(uneven_experts)
    for step in range(2):
        for rank in (0, 3):
            [found] = told[rank].value[step]
            check(found, [torch.tensor([1.0, 4.0])], 2)
            assert found.writes == (rank == 0)
        assert told[1].value[step] == told[2].value[step] == []


def stages(rank: int) -> Any:
    """Two stages of two ranks each, by hand: stages 0 and 1 share no layer; within a stage ranks are data parallel."""
    first, second = dist.new_group([0, 1]), dist.new_group([2, 3])
    everyone = dist.group.WORLD
    model = nn.ModuleDict({f"stage{rank // 2}": nn.Linear(4, 4)})
    module = model[f"stage{rank // 2}"]
    wrapper = DDP(module, process_group=first if rank < 2 else second)
    collector = Collector(model, wrapper)
    steps = []
    for given in (None, everyone):
        if given is not None:
            collector.reducer.places.set_group(given)
        [x] = batches(rank % 2, count=1)
        if rank >= 2:
            dist.recv(x := torch.empty(3, 4), src=rank - 2)
        out = wrapper(x.requires_grad_())
        if rank < 2:
            dist.send(out.detach(), dst=rank + 2)
            gradient = torch.empty(3, 4)
            dist.recv(gradient, src=rank + 2)
            out.backward(gradient)
        else:
            out.square().mean().backward()
            assert x.grad is not None
            dist.send(x.grad, dst=rank - 2)
        steps.append(collector.reduce())
    return steps


def test_pipeline_stages_are_each_their_own_and_a_group_over_stages_has_all_layers(four_ranks: RankPool) -> None:
    told = four_ranks.run(stages)
    for step in range(2):
        at_step = [Told(t.value[step], t.stderr) for t in told]
        for stage, group in enumerate([(0, 1), (2, 3)]):
            check_data(at_step, [group], [f"stage{stage}|{tensor}" for tensor in ("activation", "output", "gradient")])
    assert not any(t.said for t in told)
