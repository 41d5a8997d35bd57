"""The inspector on real ranks: each parallelism's statistics are those of the whole tensors; schedules, failures and files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from numscope.distributed import agree
from numscope.distributed.reduce import Reduced
from numscope.inspect import inspector
from numscope.inspect import ranks as inspect_ranks
from numscope.records.observation import FIELDS, Observation
from numscope.summary.state import Summary
from tests.distributed.ranks import RankPool, Told
from tests.distributed.wholes import MLP, batches, check, check_data, check_whole, writers

TENSORS = ("activation", "output", "gradient", "dgrad", "weight", "wgrad")
DATA = [f"{layer}|{tensor}" for layer in ("up", "norm", "down") for tensor in ("activation", "output", "gradient")]

OURS = re.compile(r"(?<![/\w])numscope\b(?!/)")  # a word of ours; a folder of this name in somebody's path is none


def config(tensors: Sequence[str] = TENSORS, pattern: str = ".*", **more: Any) -> dict[str, Any]:
    feature = {"enabled": True, "stats": ["mean", "std", "kurtosis", "max", "l2_norm", "num_nan"], "tensors": list(tensors)} | more
    return {"section": {"enabled": True, "layers": {"layer_name_regex_pattern": pattern}, "statistics": feature}}


class Oracle:
    """Keeps the whole tensors that a step shows, seen by hooks of its own."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.whole: dict[str, list[Tensor]] = {}
        for name, module in model.named_modules():
            if any(True for _ in module.parameters(recurse=False)):
                module.register_forward_hook(partial(self._after, name), prepend=True)

    def _after(self, name: str, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        self.see(f"{name}|activation", args[0])
        self.see(f"{name}|output", output)
        output.register_hook(partial(self.see, f"{name}|gradient"))

    def see(self, key: str, tensor: Any) -> None:
        full = tensor.detach().full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()
        self.whole.setdefault(key, []).append(full.clone())

    def see_parameters(self, *_: Any) -> None:
        for name, module in self.model.named_modules():
            if getattr(module, "weight", None) is not None:
                self.see(f"{name}|weight", module.weight)
                if module.weight.grad is not None:
                    self.see(f"{name}|wgrad", module.weight.grad)


def reduced(observations: Sequence[Observation]) -> dict[str, Reduced]:
    """Observations as the reducer gives them, to hold against whole tensors; their values are those of their fields."""
    found = {}
    for one in observations:
        key = f"{one.layer}|{one.tensor}"
        assert key not in found
        summary = Summary(**{name: one.fields[name] for name in FIELDS})
        assert one.values["mean"] == summary.mean and one.values["num_nan"] == summary.num_nan
        found[key] = Reduced(key, summary.to_row(), [], one.ranks, one.mine)
    return found


Build = Callable[[nn.Module], tuple[nn.Module, Sequence[Tensor]]]


def inspect(rank: int, build: Build, folder: str, steps: int, options: dict[str, Any], **more: Any) -> list[Any]:
    """Two micro-batches a step. Returns for each step what the inspector said, and what it should have."""
    model = MLP(options.get("width", 8))
    oracle = Oracle(model)
    wrapper, inputs = build(model)
    with numscope.watch(wrapper, config=config(**more), on_nonfinite=None, log_dir=folder) as scope:
        assert scope._watch.inspector is not None
        if "group" in options:
            options["group"](scope._watch.inspector)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_pre_hook(oracle.see_parameters)
        found = []
        for step in range(steps):
            optimizer.zero_grad()
            for x in inputs:
                out = wrapper(x + step)
                (out.full_tensor() if hasattr(out, "full_tensor") else out).square().mean().backward()
            scope._watch.inspector.last = []
            optimizer.step()
            scope._watch.inspector.settle()
            found.append((reduced(scope._watch.inspector.last), oracle.whole))
            oracle.whole = {}
    return found


def at(step: int, told: Sequence[Told]) -> list[Told]:
    return [Told(t.value[step], t.stderr) for t in told]


# ---- DDP


def build_ddp(model: nn.Module) -> tuple[nn.Module, Sequence[Tensor]]:
    return DDP(model), batches(dist.get_rank(), rows=3 + dist.get_rank())


def ddp(rank: int, folder: str, **more: Any) -> Any:
    return inspect(rank, build_ddp, folder, 3, {}, **more)


@pytest.mark.parametrize("world", [2, 4])
def test_ddp_joins_data_counts_weights_once_and_skips_steps_together(
    ranks: RankPool, four_ranks: RankPool, world: int, tmp_path: Path
) -> None:
    told = (ranks if world == 2 else four_ranks).run(partial(ddp, freq=2), str(tmp_path))
    for step in (0, 2):
        there = at(step, told)
        check_data(there, [range(world)], DATA)
        for t in there:  # what up's output receives is what norm alone gives to its input
            assert t.value[0]["norm|dgrad"] == t.value[0]["up|gradient"]._replace(key="norm|dgrad")
        for key in ("up|weight", "up|wgrad", "norm|weight", "down|wgrad"):
            for rank in range(world):
                check(there[rank].value[0][key], there[rank].value[1][key], 1)
            assert writers(there, key) == [0]
    assert [t.value[1][0] for t in told] == [{}] * world
    assert not any(OURS.search(t.stderr) for t in told)
    lines = [log.read_text().splitlines() for log in sorted((tmp_path / "debug_statistics_logs").iterdir())]
    names = [match[1] for text in lines for line in text if (match := re.match(r"INFO - (\S+)\s+iteration=000002\s", line))]
    assert len(names) == len(set(names)) == (3 * len(TENSORS) - 1) * 6  # each once, by one rank; the input has no gradient
    assert not any(lines[1:])


def test_unreduced_each_rank_tells_its_own(ranks: RankPool, tmp_path: Path) -> None:
    told = ranks.run(partial(ddp, reduce=False), str(tmp_path))
    for step in range(3):
        for t in at(step, told):
            for key in DATA:
                check(t.value[0][key], t.value[1][key], 1)
                assert t.value[0][key].writes


# ---- FSDP2


def build_fsdp(replicated: bool, root_alone: bool, model: Any) -> tuple[nn.Module, Sequence[Tensor]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("r", "s")) if replicated else init_device_mesh("cpu", (world,))
    if not root_alone:
        fully_shard(model.up, mesh=mesh)
    return fully_shard(model, mesh=mesh), batches(dist.get_rank())


def fsdp(rank: int, folder: str, width: int, replicated: bool, root_alone: bool) -> Any:
    return inspect(rank, partial(build_fsdp, replicated, root_alone), folder, 3, {"width": width})


@pytest.mark.parametrize(("world", "width", "root_alone"), [(2, 3, False), (4, 6, False), (2, 8, True)])
def test_fsdp2_joins_shards(ranks: RankPool, four_ranks: RankPool, world: int, width: int, root_alone: bool, tmp_path: Path) -> None:
    told = (ranks if world == 2 else four_ranks).run(fsdp, str(tmp_path), width, False, root_alone)
    for step in range(3):
        there = at(step, told)
        check_data(there, [range(world)], DATA)
        for key in ("up|weight", "up|wgrad", "norm|weight", "norm|wgrad", "down|weight", "down|wgrad"):
            check_whole(there, key, world, [range(world)])
    assert not any(OURS.search(t.stderr) for t in told)


def test_hybrid_sharding_counts_replicas_once(four_ranks: RankPool, tmp_path: Path) -> None:
    told = at(1, four_ranks.run(fsdp, str(tmp_path), 3, True, False))
    check_data(told, [range(4)], DATA)
    for key in ("up|weight", "up|wgrad", "down|wgrad"):
        for t in told:
            check(t.value[0][key], t.value[1][key], 2)
        assert writers(told, key) == [0]


# ---- tensor parallel


def build_tensor_parallel(data_parallel: bool, sequence: bool, root_alone: bool, model: Any) -> tuple[nn.Module, Sequence[Tensor]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    shape = (2, 2) if data_parallel else (1, dist.get_world_size())
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
    plan: dict[str, Any] = {"up": ColwiseParallel(output_layouts=Replicate()), "down": RowwiseParallel(input_layouts=Replicate())}
    if sequence:
        plan = {
            "up": ColwiseParallel(output_layouts=Shard(0)),
            "norm": SequenceParallel(sequence_dim=0),
            "down": RowwiseParallel(input_layouts=Shard(0)),
        }
    parallelize_module(model, mesh["tp"], plan)
    if data_parallel:
        if not root_alone:
            fully_shard(model.up, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    return model, batches(mesh.get_local_rank("dp"), rows=4)


def tensor_parallel(rank: int, folder: str, data_parallel: bool, sequence: bool, root_alone: bool = False) -> Any:
    return inspect(rank, partial(build_tensor_parallel, data_parallel, sequence, root_alone), folder, 2, {"width": 6})


@pytest.mark.parametrize(("world", "sequence"), [(2, False), (4, True)])
def test_tensor_parallel_placements_decide(ranks: RankPool, four_ranks: RankPool, world: int, sequence: bool, tmp_path: Path) -> None:
    told = (ranks if world == 2 else four_ranks).run(tensor_parallel, str(tmp_path), False, sequence)
    for step in range(2):
        there = at(step, told)
        for key in ("up|activation", "down|output"):  # replicated; summands that are summed up first
            check_whole(there, key, 1, [range(world)])
        for key in ("up|output", "up|gradient", "down|activation", "up|weight", "up|wgrad", "down|weight", "down|wgrad"):
            check_whole(there, key, world, [range(world)])
        for key in ("norm|activation", "norm|output") if sequence else ():
            check_whole(there, key, world, [range(world)])
        for key in ("norm|weight", "norm|wgrad") if sequence else ():
            check_whole(there, key, 1, [range(world)])
    assert not any(OURS.search(t.stderr) for t in told)


@pytest.mark.parametrize("root_alone", [False, True])
def test_fsdp2_over_tensor_parallelism_merges_over_both_axes(four_ranks: RankPool, root_alone: bool, tmp_path: Path) -> None:
    told = four_ranks.run(tensor_parallel, str(tmp_path), True, False, root_alone)
    for step in range(2):
        there = at(step, told)
        for key in ("norm|activation", "norm|output", "norm|gradient"):  # plain: over data parallelism alone
            check_data(there, [(0, 2), (1, 3)], [key])
        for key in ("up|weight", "up|wgrad", "down|weight", "down|wgrad"):
            check_whole(there, key, 4, [range(4)])
        for key, merged in (("up|output", 4), ("down|activation", 4), ("up|activation", 2), ("down|output", 2)):
            parts = [part for rank in (0, 2) for part in there[rank].value[1][key]]
            for t in there:
                check(t.value[0][key], parts, merged)
            assert writers(there, key) == [0]
    assert not any(OURS.search(t.stderr) for t in told)


def updates(rank: int, folder: str, sequence: bool) -> Any:
    model = MLP(6)
    wrapper, inputs = build_tensor_parallel(False, sequence, False, model)
    oracle = Oracle(model)
    what = config(("weight",), stats=["mean", "num_nan", "update_weight_ratio", "grad_weight_ratio"])
    with numscope.watch(wrapper, config=what, on_nonfinite=None, log_dir=folder) as scope:
        assert scope._watch.inspector is not None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_pre_hook(oracle.see_parameters)
        model(inputs[0]).square().mean().backward()
        optimizer.step()
        scope._watch.inspector.settle()
        ratios = {o.layer: (o.values["grad_weight_ratio"], o.values["update_weight_ratio"], o.ranks) for o in scope._watch.inspector.last}
    return ratios, oracle.whole


@pytest.mark.parametrize("sequence", [False, True])
def test_update_statistics_of_distributed_weights_are_those_of_the_whole(ranks: RankPool, sequence: bool, tmp_path: Path) -> None:
    """With sequence parallelism the gradient of the replicated norm is summands until the optimizer sums them up."""
    for told in ranks.run(updates, str(tmp_path), sequence):
        ratios, whole = told.value
        for layer, merged in (("up", 2), ("norm", 1), ("down", 2)):
            [weight], [gradient] = whole[f"{layer}|weight"], whole[f"{layer}|wgrad"]
            ratio = float(gradient.double().norm() / weight.double().norm())
            assert ratios[layer] == (pytest.approx(ratio, rel=1e-12), pytest.approx(0.1 * ratio, rel=1e-4), merged)


# ---- ranks that differ


def stages(rank: int, folder: str, everyone: bool) -> Any:
    """Two stages, the second without a layer that is asked for; one group over both where the user says so."""
    names = ("first", "second")
    model = nn.ModuleDict({names[rank]: nn.Linear(4, 4), f"other{rank}": nn.Linear(4, 4)})
    found = []
    what = config(("activation", "output", "weight"), pattern="first|other0")
    with numscope.watch(model, config=what, on_nonfinite=None, log_dir=folder) as scope:
        assert scope._watch.inspector is not None
        if everyone:
            scope._watch.inspector.joint.set_group(dist.group.WORLD)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            optimizer.zero_grad()
            [x] = batches(step, count=1)
            if rank == 1:
                dist.recv(x := torch.empty(3, 4), src=0)
            out = model[names[rank]](x.requires_grad_())
            if rank == 0:
                dist.send(out.detach(), dst=1)
                dist.recv(gradient := torch.empty(3, 4), src=1)
                out.backward(gradient)
            else:
                out.square().mean().backward()
                assert x.grad is not None
                dist.send(x.grad, dst=0)
            scope._watch.inspector.last = []
            optimizer.step()
            scope._watch.inspector.settle()
            found.append({key: (one.row[0], one.ranks, one.writes) for key, one in reduced(scope._watch.inspector.last).items()})
    return found


@pytest.mark.parametrize("everyone", [False, True])
def test_stage_with_nothing_to_collect_hangs_nobody(ranks: RankPool, everyone: bool, tmp_path: Path) -> None:
    told = ranks.run(stages, str(tmp_path), everyone)
    sizes = {"first|activation": 12.0, "first|output": 12.0, "first|weight": 16.0, "other0|weight": 16.0}
    expected = {key: (numel, 1, True) for key, numel in sizes.items()}
    assert told[0].value == [expected] * 2
    assert told[1].value == [{}] * 2


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: Tensor, expert: int) -> Tensor:
        return self.experts[expert](self.up(x))


def experts(rank: int, folder: str, wanted: Sequence[Sequence[int]]) -> Any:
    model = Experts()
    oracle = Oracle(model)
    wrapper = DDP(model, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = []
    with numscope.watch(wrapper, config=config(("activation", "output", "gradient")), on_nonfinite=None, log_dir=folder) as scope:
        assert scope._watch.inspector is not None
        for chosen, x in zip(wanted, batches(rank, count=len(wanted)), strict=True):
            wrapper(x, chosen[rank]).square().mean().backward()
            optimizer.step()
            scope._watch.inspector.settle()
            steps.append((reduced(scope._watch.inspector.last), oracle.whole))
            oracle.whole = {}
    return steps


def test_experts_are_merged_over_the_ranks_that_ran_them(ranks: RankPool, tmp_path: Path) -> None:
    wanted = [(0, 0), (0, 1), (1, 1), (2, 0), (0, 0)]
    told = ranks.run(experts, str(tmp_path), wanted)
    for step, chosen in enumerate(wanted):
        there = at(step, told)
        check_data(there, [(0, 1)], ["up|output", "up|gradient"])
        for expert in set(chosen):
            those = [rank for rank in range(2) if chosen[rank] == expert]
            check_data(there, [those], [f"experts.{expert}|{tensor}" for tensor in ("activation", "output", "gradient")])


def layer_groups(rank: int, folder: str) -> Any:
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    groups = {"group": lambda inspector: inspector.joint.set_group(pairs[rank % 2], "down")}
    return inspect(rank, build_ddp, folder, 2, groups)


def test_one_layer_may_have_a_group_of_its_own(four_ranks: RankPool, tmp_path: Path) -> None:
    told = four_ranks.run(layer_groups, str(tmp_path))
    for step in range(2):
        there = at(step, told)
        check_data(there, [range(4)], [key for key in DATA if not key.startswith("down")])
        check_data(there, [(0, 2), (1, 3)], [key for key in DATA if key.startswith("down")])


# ---- no harm


def train(rank: int, folder: str, build: Build, watched: bool, detecting: bool) -> Any:
    model = MLP(6)
    wrapper, inputs = build(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    options: dict[str, Any] = {} if detecting else {"on_nonfinite": None}
    losses = []
    with numscope.watch(wrapper, config=config(), log_dir=folder, **options) if watched else contextlib.nullcontext():
        for step in range(3):
            optimizer.zero_grad()
            for x in inputs:
                out = wrapper(x + step)
                loss = (out.full_tensor() if hasattr(out, "full_tensor") else out).square().mean()
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
    parts = [getattr(p, "_local_tensor", p).detach().clone() for p in model.parameters()]
    return losses, [p.tolist() for p in parts]


@pytest.mark.parametrize(
    ("build", "detecting"),
    [
        (build_ddp, True),
        (partial(build_fsdp, False, False), False),
        (partial(build_fsdp, False, False), True),
        (partial(build_tensor_parallel, False, False, False), False),
        (partial(build_tensor_parallel, False, True, False), True),
    ],
    ids=["ddp", "fsdp2, statistics alone", "fsdp2", "tensor parallel, statistics alone", "sequence parallel"],
)
def test_on_or_off_losses_and_weights_are_bitwise_the_same(ranks: RankPool, build: Build, detecting: bool, tmp_path: Path) -> None:
    on, off = (ranks.run(train, str(tmp_path), build, watched, detecting) for watched in (True, False))
    assert [t.value for t in on] == [t.value for t in off]


def one_after_the_other(rank: int, folder: str, behind: int, ends: bool) -> Any:
    """Rank 1 begins its first step when rank 0 has made all of its own, and closed its watch if it ``ends``."""
    before = inspect_ranks.MOST_BEHIND, inspector.SETTLE_S
    inspect_ranks.MOST_BEHIND, inspector.SETTLE_S = behind, 0.5 if ends else before[1]
    model = nn.Sequential(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scope = numscope.watch(model, config=config(("output",)), on_nonfinite=None, log_dir=folder)
    scope.set_group(dist.group.WORLD)
    assert scope._watch.inspector is not None
    written: list[Observation] = []
    scope._watch.inspector.recorder.write = written.extend  # type: ignore[method-assign]
    met = distributed_c10d._get_default_store()
    if rank == 1:
        met.wait(["first rank is through"])
    for x in batches(rank, count=4):
        model(x).square().mean().backward()
        optimizer.step()
    if rank == 0 and ends:
        scope.close()
    met.set("first rank is through", "")
    scope.close()
    inspect_ranks.MOST_BEHIND, inspector.SETTLE_S = before
    return [(one.step, one.ranks) for one in written]


@pytest.mark.parametrize(
    ("behind", "ends", "merged", "said"),
    [
        (100, False, 2, ""),
        (100, True, 1, ""),
        (2, False, 1, "other ranks are 2 recorded steps behind: from now on rank 0 reports its own statistics"),
    ],
)
def test_no_rank_waits_for_anothers_numbers(ranks: RankPool, behind: int, ends: bool, merged: int, said: str, tmp_path: Path) -> None:
    told = ranks.run(one_after_the_other, str(tmp_path), behind, ends)
    assert told[0].value == [(step, merged) for step in range(4)]
    assert said in told[0].stderr and bool(said) is bool(OURS.search(told[0].stderr))


def failing(rank: int, folder: str, place: str, at_step: int) -> Any:
    """The inspector itself fails on rank 1; the schedule has every second step, rank 0 goes on alone."""
    model = MLP()
    wrapper = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scope = numscope.watch(wrapper, config=config(freq=2), on_nonfinite=None, log_dir=folder)
    inspector = scope._watch.inspector
    assert inspector is not None
    owner, name = {
        "forward": (inspector._tally, "observe"),
        "weights": (inspector, "_see_weights"),
        "read": (inspector._tally, "read"),
        "write": (inspector.recorder, "write"),
        "search": (scope._watch.steps.optimizers, "search"),
        "begin": (inspector._inspection, "active"),
    }[place]
    original = getattr(owner, name)
    step, done = 0, False

    def broken(*args: Any, **kwargs: Any) -> Any:
        nonlocal done
        if rank == 1 and step >= at_step and not done:
            done = place == "search"  # what is done once only
            raise RuntimeError("planted")
        return original(*args, **kwargs)

    setattr(owner, name, broken)
    found = []
    while step < 7:
        inspector.last = []
        optimizer.zero_grad()
        for x in batches(rank):
            wrapper(x).square().mean().backward()
        optimizer.step()
        inspector.settle()
        found.append({o.ranks for o in inspector.last if o.tensor == "output"})
        step += 1
    scope.close()
    return found


@pytest.mark.parametrize(
    ("place", "step"),
    [
        *(("forward", step) for step in (0, 1, 2)),
        *(("weights", 2), ("read", 0), ("read", 1), ("write", 2), ("begin", 0), ("begin", 1), ("search", 0)),
    ],
)
def test_inspector_that_fails_on_one_rank_tells_the_others_and_none_hangs(ranks: RankPool, place: str, step: int, tmp_path: Path) -> None:
    told = ranks.run(failing, str(tmp_path), place, step)
    mine = told[0].value
    assert mine[1::2] == [set()] * 3  # off the schedule
    assert mine[6] == {1}
    counts = [next(iter(there)) for there in mine[::2]]
    assert sorted(counts, reverse=True) == counts
    assert len([line for line in told[0].said if "from now on rank 0 reports its own statistics" in line]) == 1
    assert told[1].value[6] == set()


def without_on_rank_1(rank: int, folder: str) -> Any:
    patience, agree.PATIENCE_S = agree.PATIENCE_S, 0.5
    try:
        model = MLP()
        wrapper = DDP(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        options = {"config": config()} if rank == 0 else {}
        found = []
        with numscope.watch(wrapper, on_nonfinite=None, log_dir=folder, **options) as scope:
            for x in batches(rank):
                wrapper(x).square().mean().backward()
                optimizer.step()
                if (statistics := scope._watch.inspector) is not None:
                    statistics.settle()
                    found.append({(o.ranks, o.mine) for o in statistics.last})
        return found
    finally:
        agree.PATIENCE_S = patience


def test_configuration_on_one_rank_only_is_that_ranks_own(ranks: RankPool, tmp_path: Path) -> None:
    told = ranks.run(without_on_rank_1, str(tmp_path))
    assert told[0].value == [{(1, True)}] * 2
    assert len([line for line in told[0].said if "not all of ranks [0, 1] collect these statistics" in line]) == 1
    assert told[1].value == [] and not told[1].said
