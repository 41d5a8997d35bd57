"""Rows merged over real ranks are the rows of the whole tensors, whatever the parallelism; nobody waits for long for who does not come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

from numscope.distributed import agree, reduce
from numscope.distributed.reduce import Item, Reduced, Reducer, Refused
from numscope.summary.dispatch import summarize
from numscope.summary.state import EMPTY_ROW, Groups, merge_rows
from tests.distributed.ranks import RankPool, Told
from tests.distributed.wholes import MLP, batches, check, check_data, check_whole, writers

# ---- what ranks do: hooks as the inspector's, and beside them the whole tensors


class Collector:
    """Merges what layers show into items; keeps the whole tensors for the test."""

    def __init__(self, model: nn.Module, wrapper: nn.Module | None = None) -> None:
        self.model = model
        self.reducer = Reducer(model, model if wrapper is None else wrapper, "test")
        self.items: dict[str, Item] = {}
        self.whole: dict[str, list[Tensor]] = {}
        self.refused: dict[str, str] = {}
        for name, module in model.named_modules():
            if any(True for _ in module.parameters(recurse=False)):
                module.register_forward_hook(partial(self._after, name), prepend=True)

    def _after(self, name: str, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        self.see(f"{name}|activation", args[0], "data")
        self.see(f"{name}|output", output, "data")
        output.register_hook(partial(self.see, f"{name}|gradient", kind="data"))

    def see_parameters(self) -> None:
        for name, parameter in self.model.named_parameters():
            self.see(f"{name}|weight", parameter, "parameter")
            if parameter.grad is not None:
                self.see(f"{name}|wgrad", parameter.grad, "gradient")

    def see(self, key: str, tensor: Any, kind: Any) -> None:
        try:
            local, groups = self.reducer.place(tensor, kind, key.partition("|")[0])
        except Refused as refused:
            self.refused[key] = str(refused)
            return
        row = summarize(local, Groups.ALL).to_row()
        if key in self.items:
            row = merge_rows(self.items[key].row, row)
        self.items[key] = Item(key, groups, row)
        full = tensor.detach().full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()
        self.whole.setdefault(key, []).append(full.clone())

    def reduce(self) -> tuple[dict[str, Reduced], dict[str, list[Tensor]]]:
        found = self.reducer.reduce(list(self.items.values()))
        result = {one.key: one for one in found}, self.whole
        self.items, self.whole = {}, {}
        return result


def train(collector: Collector, wrapper: nn.Module, inputs: Sequence[Tensor]) -> Any:
    """Two micro-batches of one step."""
    for x in inputs:
        out = wrapper(x)
        (out.full_tensor() if hasattr(out, "full_tensor") else out).square().mean().backward()
    collector.see_parameters()
    return collector.reduce()


DATA = [f"{layer}|{tensor}" for layer in ("up", "norm", "down") for tensor in ("activation", "output", "gradient")]

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


@pytest.mark.parametrize("width", [8, 3, 1])  # 3 rows on 2 ranks are padded; with 1 row (or 3 on 4 ranks) some rank has no element
@pytest.mark.parametrize("world", [2, 4])
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


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("width", [8, 6])
@pytest.mark.parametrize("world", [2, 4])
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
    collector.reducer.set_group(low if rank < 2 else high)
    collector.reducer.set_group(odd, "down")
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
    collector.reducer.set_group(dist.group.WORLD)
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
    reducer._places.adopt([dp, tp])  # as the parameters' mesh would make it know them
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
            collector.reducer.set_group(given)
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


# ---- the exchange itself


def of_all_ranks() -> tuple[Reducer, Any]:
    model = nn.Linear(2, 2)
    reducer = Reducer(model, model, "test")
    reducer.set_group(dist.group.WORLD)
    return reducer, dist.group.WORLD


def by_hand(rank: int, gathered: int, cells: int) -> Any:
    """Rows with all kinds of cells, through the exchange for few ranks or the one for many."""
    was, reduce.GATHERED = reduce.GATHERED, gathered
    generator = torch.Generator().manual_seed(rank)
    try:
        reducer, group = of_all_ranks()
        items = []
        for k in range(5):
            tensor = torch.randn(rank * k, generator=generator) * 10.0 ** (3 * k)
            if rank == 1 and k:
                tensor[0] = (math.inf, -math.inf, math.nan, 0.0)[k - 1]
            extra = torch.randn(cells, generator=generator).exp().tolist()
            is_max = [bool((j + k) % 2) for j in range(cells)]
            items.append(Item(f"site{k}", (group,), summarize(tensor, Groups.ALL).to_row(), extra, is_max))
        return items, reducer.reduce(items[: 5 - rank] + items[5 - rank :]), reducer.reduce(list(reversed(items)))
    finally:
        reduce.GATHERED = was


def plain_items(items: Sequence[Item]) -> list[tuple[Any, ...]]:
    return [(i.key, i.row, i.cells, i.is_max) for i in items]


def by_hand_plain(rank: int, gathered: int, cells: int) -> Any:
    items, first, second = by_hand(rank, gathered, cells)
    return plain_items(items), first, list(reversed(second))


@pytest.mark.parametrize("cells", [0, 5])
@pytest.mark.parametrize("gathered", [8, 1])
def test_exchange_of_few_and_of_many_ranks_merge_by_the_rows_own_law(four_ranks: RankPool, gathered: int, cells: int) -> None:
    told = four_ranks.run(by_hand_plain, gathered, cells)
    for k in range(5):
        parts = [t.value[0][k] for t in told]
        row = list(EMPTY_ROW)
        for part in parts:
            row = merge_rows(row, part[1])
        merged = [
            max(p[2][j] for p in parts) if parts[0][3][j] else sum(p[2][j] for p in parts) for j in range(cells)
        ]  # fmt: skip
        for t in told:
            for found in (t.value[1][k], t.value[2][k]):
                assert found.row[:10] == row[:10] and found.ranks == 4
                assert found.writes == (t is told[0])
                assert found.row == pytest.approx(row, rel=1e-13, nan_ok=True)
                assert found.cells == pytest.approx(merged, rel=1e-13)
                if gathered == 8:
                    assert found.row == row and found.cells == merged  # in rank order: to the bit


def changing(rank: int, script: Sequence[Sequence[str]]) -> Any:
    reducer, group = of_all_ranks()
    found = []
    for names in script:
        keys = names[rank].split()
        # a key with a digit has that many cells
        items = [
            Item(
                key,
                (group,),
                summarize(torch.tensor([float(rank + 1)]), Groups.ALL).to_row(),
                [1.0] * (c := int(key[1:] or 0)),
                [False] * c,
            )
            for key in keys
        ]
        found.append([(r.key, r.row[0], r.row[10], r.cells, r.ranks, r.writes) for r in reducer.reduce(items)])
    return found


SCRIPTS: list[list[tuple[str, str]]] = [
    [("a b", "a b"), ("a b", "a b c"), ("d a b", "c"), ("", "e"), ("e", ""), ("a", "a")],
    [("", ""), ("a", ""), ("", "b"), ("b a", "a b")],
    [("a3", "a3"), ("a3 b2", "b2 a3"), ("b2", "a3")],
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_keys_come_and_go_on_any_rank(ranks: RankPool, script: list[tuple[str, str]]) -> None:
    told = ranks.run(changing, script)
    for step, names in enumerate(script):
        for rank in range(2):
            expected = []
            for key in names[rank].split():
                those = [r for r in range(2) if key in names[r].split()]
                cells = [float(len(those))] * int(key[1:] or 0)
                expected.append((key, len(those), sum(r + 1.0 for r in those), cells, len(those), rank == those[0]))
            assert told[rank].value[step] == expected


def different_cells(rank: int) -> Any:
    reducer, group = of_all_ranks()
    item = Item("a", (group,), summarize(torch.ones(1), Groups.ALL).to_row(), [1.0] * rank, [False] * rank)
    return [reducer.reduce([item])[0] for _ in range(2)]


def test_sites_whose_cells_are_not_alike_stay_apart(ranks: RankPool) -> None:
    told = ranks.run(different_cells)
    assert [[(r.ranks, r.cells, r.writes) for r in t.value] for t in told] == [[(1, [], True)] * 2, [(1, [1.0], True)] * 2]


# ---- ranks that go, or never come


def leaving(rank: int, step_of_failure: int) -> Any:
    reducer, group = of_all_ranks()
    item = Item("a", (group,), summarize(torch.ones(rank + 1), Groups.ALL).to_row())
    found = []
    for step in range(4):
        if rank == 1 and step == step_of_failure:
            reducer.leave()
            reducer.reduce([item._replace(key="news")])
            break
        found.append(reducer.reduce([item])[0])
    return [(r.ranks, r.row[0], r.writes) for r in found]


@pytest.mark.parametrize("step", [0, 2])
def test_rank_that_leaves_says_goodbye_and_the_others_go_on_alone(ranks: RankPool, step: int) -> None:
    told = ranks.run(leaving, step)
    assert told[0].value == [(2, 3.0, True)] * step + [(1, 1.0, True)] * (4 - step)
    assert told[1].value == [(2, 3.0, False)] * step
    assert len(told[0].said) == 1 and "a rank's watch has failed; from now on rank 0 tells its own statistics" in told[0].said[0]
    assert told[1].said == []


def alone(rank: int, how: str) -> Any:
    patience, agree.PATIENCE_S = agree.PATIENCE_S, 0.5
    try:
        model = MLP()
        wrapper = DDP(model)
        if how == "without" and rank == 1:
            return []
        reducer = Reducer(model, wrapper, f"config-{rank}" if how == "other" else "config")
        if how == "group":
            reducer.set_group(other := dist.new_group([0, 1]))
            assert other is not None
            if rank == 1:
                reducer.set_group(None)
        found = []
        for _ in range(3):
            item = Item("a", reducer.default_groups("data"), summarize(torch.ones(rank + 1), Groups.ALL).to_row())
            weight = Item("w", reducer.default_groups("parameter"), item.row)
            found.append([(r.ranks, r.row[0], r.writes) for r in reducer.reduce([item, weight])])
        return found
    finally:
        agree.PATIENCE_S = patience


@pytest.mark.parametrize("how", ["without", "other", "group"])
def test_rank_without_the_same_configuration_leaves_each_alone_and_it_is_said_once(ranks: RankPool, how: str) -> None:
    told = ranks.run(alone, how)
    assert told[0].value == [[(1, 1.0, True)] * 2] * 3
    assert len([line for line in told[0].said if "not all of ranks [0, 1] collect these statistics" in line]) == 1
    if how != "without":
        assert told[1].value == [[(1, 2.0, True)] * 2] * 3


def out_of_step(rank: int) -> Any:
    reducer, group = of_all_ranks()
    item = Item("a", (group,), summarize(torch.ones(1), Groups.ALL).to_row())
    return [reducer.reduce([item], step)[0].ranks for step in (0, 10 + 10 * rank, 30)]


def test_ranks_that_are_at_different_steps_part(ranks: RankPool) -> None:
    told = ranks.run(out_of_step)
    assert [t.value for t in told] == [[2, 1, 1]] * 2
    assert all("ranks collect at different steps (10 and 20)" in t.said[0] for t in told)


def broken(rank: int) -> Any:
    reducer, group = of_all_ranks()
    item = Item("a", (group,), summarize(torch.ones(1), Groups.ALL).to_row())
    found = [reducer.reduce([item])[0].ranks]
    original = dist.all_gather

    def fails(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("connection closed by peer")

    dist.all_gather = fails
    try:
        found.append(reducer.reduce([item])[0].ranks)
    finally:
        dist.all_gather = original
    return [*found, reducer.reduce([item])[0].ranks]


def test_exchange_that_fails_leaves_each_rank_with_its_own_rows(ranks: RankPool) -> None:
    told = ranks.run(broken)
    assert [t.value for t in told] == [[2, 1, 1]] * 2
    assert all(len(t.said) == 1 and "connection closed by peer" in t.said[0] for t in told)


def test_process_by_itself_merges_nothing() -> None:
    model = nn.Linear(2, 2)
    reducer = Reducer(model, model, "test")
    row = summarize(torch.ones(3), Groups.ALL).to_row()
    tensor = torch.ones(2)
    local, groups = reducer.place(tensor, "data")
    assert local is tensor and groups == ()
    assert reducer.reduce([Item("a", groups, row, [2.0], [True])]) == [Reduced("a", row, [2.0], 1, True)]
