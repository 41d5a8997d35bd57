"""Silent errors of training on several ranks that projects have published, in small form: which alert names them, where, since when.

Each docstring names where the error was described. Healthy runs on ranks are silent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from tests.distributed.ranks import RankPool, Told
from tests.integrations.gpt import VOCABULARY, SequenceParallel, batch, config, gpt, loss_of, megatron, sequence

STEPS = 8
RULES = ("replicas differ", "same data on ranks")


class Net(nn.Module):
    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.last = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).relu())


def batches(rank: int, steps: int = STEPS) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        yield torch.randn(6, 4, generator=generator)


def averaged(model: nn.Module) -> None:
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def brief(scope: numscope.Scope) -> list[dict[str, Any]]:
    """All that checks have said, and then the watch ends."""
    dist.barrier()  # so that the last notes can be read
    scope.close()
    return [
        {
            "rule": a.rule,
            "step": a.step,
            "layer": a.layer,
            "tensor": a.tensor,
            "asks": a.asks,
            "text": a.text,
            "advice": a.advice,
            **a.evidence,
        }
        for a in scope.alerts
        if a.rule in RULES
    ]


def only(answers: list[Told]) -> dict[str, Any]:
    """The one alert, which the lowest rank gives."""
    first, *others = [answer.value for answer in answers]
    assert not any(others)
    assert len(first) == 1, first
    return first[0]


def train(rank: int, how: str) -> list[dict[str, Any]]:
    torch.manual_seed(rank if how in ("own seeds", "own seeds, apart") else 0)
    net = Net(norm="norm" in how)
    wraps = how.startswith("ddp")
    model: Any = DDP(net, **({"broadcast_buffers": False} if "not broadcast" in how else {})) if wraps else net
    if how == "ddp converted":
        model.double()
        model.float()  # gradients arrive at places of which DDP knows nothing
    rate = 0.1 if not (how == "ddp own rate" and rank == 1) else 0.01
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    scope = numscope.watch(model)
    for step, x in enumerate(batches(0 if "same data" in how else rank)):
        optimizer.zero_grad()
        called = model.module if how == "ddp bypassed" else model
        called(x).square().mean().backward()
        if not wraps and how not in ("not averaged", "own seeds, apart"):
            averaged(model)
        if how == "ddp clipped on one rank" and rank == 1 and step >= 2:
            torch.nn.utils.clip_grad_norm_([net.last.weight], 1e-3)
        if how == "ddp gradient of one step" and rank == 1 and step == 2:
            net.last.weight.grad.view(torch.int32)[0, 0] ^= 1 << 20  # type: ignore[union-attr]
        optimizer.step()
        if how == "ddp written locally" and step == 1:
            with torch.no_grad():
                net.last.bias += rank
        dist.barrier()
    return brief(scope)


def test_ddp_bypassed_by_calling_its_module(ranks: RankPool) -> None:
    """minimind #853 and trl #7245: the loss' forward goes through ``model.module``, so no gradient is averaged."""
    alert = only(ranks.run(train, "ddp bypassed"))
    assert alert["rule"] == "replicas differ" and not alert["asks"]
    assert (alert["step"], alert["last step equal"], alert["gradients agree"]) == (1, 0, False)
    assert alert["parameters"] == ["first.weight", "first.bias", "last.weight", "last.bias"]
    assert alert["text"] == (
        "4 of 4 parameters differ between ranks 0 and 1; the first is first.weight; all were equal at step 0; gradients differ too; "
        "of two ranks nobody can say which is right."
    )
    assert "call the DDP wrapper" in alert["advice"]


def test_ddp_whose_gradients_go_elsewhere_after_a_conversion(ranks: RankPool) -> None:
    """pytorch #104336: a wrapped model that is moved away and back is no longer synchronized."""
    alert = only(ranks.run(train, "ddp converted"))
    assert alert["rule"] == "replicas differ"
    assert (alert["step"], alert["gradients agree"]) == (1, False)


def test_gradients_that_nobody_averages(ranks: RankPool) -> None:
    """e2eAIOK #197: several processes, and no synchronization after backward. Nothing says that they train one model: it asks."""
    alert = only(ranks.run(train, "not averaged"))
    assert alert["rule"] == "replicas differ" and alert["asks"]
    assert (alert["step"], alert["gradients agree"], alert["last step equal"]) == (1, False, 0)


def test_ranks_with_initial_weights_of_their_own(ranks: RankPool) -> None:
    """Gradients are averaged by hand, but each rank has another seed and nobody broadcasts."""
    alert = only(ranks.run(train, "own seeds"))
    assert alert["rule"] == "replicas differ"
    assert (alert["step"], alert["last step equal"]) == (0, None)
    assert "; they have differed from the start" in alert["text"]
    assert "Broadcast" in alert["advice"]


def test_learning_rate_of_one_rank(four_ranks: RankPool) -> None:
    """One rank resumes with another optimizer state or rate: gradients agree, weights drift. The majority says which rank it is."""
    alert = only(four_ranks.run(train, "ddp own rate"))
    assert (alert["step"], alert["odd ranks"], alert["gradients agree"]) == (1, [1], True)
    assert alert["text"] == (
        "4 of 4 parameters differ on rank 1 from the other 3 ranks; the first is first.weight; all were equal at step 0; gradients agree."
    )
    assert "compare optimizer states" in alert["advice"]


def test_clipping_on_one_rank_alone(four_ranks: RankPool) -> None:
    """DeepSpeed #1801, which let BLOOM's weights drift: gradients of some weights were clipped on one rank only."""
    alert = only(four_ranks.run(train, "ddp clipped on one rank"))
    assert (alert["step"], alert["layer"], alert["tensor"], alert["odd ranks"]) == (3, "last", "weight", [1])
    assert alert["parameters"] == ["last.weight"]
    assert alert["gradients agree"] is False


def test_gradient_of_one_step_that_one_rank_got_otherwise(four_ranks: RankPool) -> None:
    """As a faulty link or memory leaves it: the step after, gradients agree again, and it is no fault of the update."""
    alert = only(four_ranks.run(train, "ddp gradient of one step"))
    assert (alert["step"], alert["parameters"], alert["odd ranks"]) == (3, ["last.weight"], [1])
    assert alert["text"] == (
        "last.weight differs on rank 1 from the other 3 ranks; all were equal at step 2; gradients agree now; at step 2, whose update "
        "parted the weights, they differed."
    )
    assert alert["advice"].endswith("suspect what averaged them in that step: the network, or that rank's hardware.")


def test_weights_that_are_written_on_each_rank(four_ranks: RankPool) -> None:
    """PC-Transformers #135: weights are updated locally, past DDP."""
    alert = only(four_ranks.run(train, "ddp written locally"))
    assert (alert["step"], alert["parameters"], alert["gradients agree"], alert["odd ranks"]) == (2, ["last.bias"], True, [])
    assert alert["text"].startswith("last.bias differs over ranks 0, 1, 2, 3, of which no majority agrees; all were equal at step 1;")


def test_buffers_that_nobody_broadcasts(ranks: RankPool) -> None:
    """mmdetection #2539: with ``broadcast_buffers=False`` each rank has a running mean of its own, and a checkpoint has one of them."""
    alert = only(ranks.run(train, "ddp norm not broadcast"))
    assert alert["asks"] and (alert["layer"], alert["tensor"], alert["step"]) == ("norm", "running_mean", 0)
    assert alert["buffers"] == ["norm.running_mean", "norm.running_var"]


@pytest.mark.parametrize("how", ["ddp", "ddp norm", "by hand", "own seeds, apart"])
def test_healthy_ranks_are_silent(ranks: RankPool, how: str) -> None:
    """The last: models of their own, which happen to train beside each other."""
    assert [t.value for t in ranks.run(train, how)] == [[], []]


def train_apart(rank: int, how: str) -> list[dict[str, Any]]:
    """Ranks that take steps by gradients of their own, and average weights after every third one."""
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    torch.manual_seed(0)
    net = Net(norm="norm" in how)
    model: Any = DDP(net) if how.startswith("ddp") else net
    optimizer: torch.optim.Optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    outer, anchors = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9), [p.detach().clone() for p in net.parameters()]
    if "hook" in how:
        model.register_comm_hook(PostLocalSGDState(None, dist.new_subgroups(1)[0], 1), post_localSGD_hook)
    if "torch's" in how:
        optimizer = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(3))
    scope = numscope.watch(model)
    for step, x in enumerate(batches(rank)):
        optimizer.zero_grad()
        with model.no_sync() if "no_sync" in how else contextlib.nullcontext():
            model(x).square().mean().backward()
        optimizer.step()
        if step % 3 == 2 and "outer" in how:
            for p, anchor in zip(net.parameters(), anchors, strict=True):
                p.grad = anchor - p.detach()
                p.data.copy_(anchor)
            averaged(net)
            outer.step()
            anchors = [p.detach().clone() for p in net.parameters()]
        elif step % 3 == 2 and "torch's" not in how and "never" not in how:
            for p in net.parameters():
                dist.all_reduce(p.data)
                p.data /= dist.get_world_size()
        dist.barrier()
    return [alert for alert in brief(scope) if "buffers" not in alert]


@pytest.mark.parametrize("how", ["by hand", "by hand, norm", "ddp no_sync", "ddp hook, torch's", "torch's", "by hand, outer"])
def test_ranks_that_average_their_weights_are_silent(ranks: RankPool, how: str) -> None:
    """Local SGD, DiLoCo: weights differ on purpose, and meet again."""
    assert [t.value for t in ranks.run(train_apart, how)] == [[], []]


@pytest.mark.parametrize("how", ["ddp no_sync, never", "never"])
def test_ranks_that_never_meet_are_asked_about(ranks: RankPool, how: str) -> None:
    alert = only(ranks.run(train_apart, how))
    assert alert["rule"] == "replicas differ" and alert["asks"]
    assert (alert["step"], alert["gradients agree"], alert["last step equal"]) == (1, False, 0)


def test_sampler_that_gives_all_ranks_the_same(ranks: RankPool) -> None:
    """A DataLoader without DistributedSampler, and the same seed on all ranks."""
    alert = only(ranks.run(train, "ddp same data"))
    assert alert["rule"] == "same data on ranks" and alert["asks"]
    assert (alert["ranks"], alert["steps"]) == ([0, 1], [0, 1, 2])
    assert alert["text"] == "Ranks 0, 1 got the same input at steps 0, 1, 2: they compute the same gradients."
    assert alert["advice"].startswith("Give the DataLoader a DistributedSampler, or each rank a seed of its own.")


# ---- tensor parallel


class Sharded(nn.Module):
    """A Megatron-style block: a split layer pair, and norm weights that each rank holds."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(self.norm(x)).relu())


def train_split(rank: int, how: str) -> list[dict[str, Any]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    model: Any = Sharded()
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    if "sharded" in how:
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scope = numscope.watch(model)
    for step, x in enumerate(torch.randn(STEPS, 5, 8, generator=torch.Generator().manual_seed(1 + mesh["data"].get_local_rank()))):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        if "clipped" in how and rank == 0 and step >= 1:
            for p in model.norm.parameters():
                getattr(p.grad, "_local_tensor", p.grad).mul_(1e-3)
        optimizer.step()
        dist.barrier()
    return brief(scope)


def test_norm_weights_that_drift_over_tensor_parallel_ranks(ranks: RankPool) -> None:
    """Megatron-DeepSpeed #271: BLOOM's norm weights differed over tensor parallel ranks; only the first rank clipped their gradients."""
    alert = only(ranks.run(train_split, "clipped"))
    assert (alert["rule"], alert["layer"], alert["tensor"], alert["step"]) == ("replicas differ", "norm", "", 2)
    assert alert["parameters"] == ["norm.weight", "norm.bias"] and alert["gradients agree"] is False and not alert["asks"]


def train_megatron(rank: int, how: str) -> list[dict[str, Any]]:
    with megatron(2):
        model = gpt(config(2)) if how == "gpt" else SequenceParallel(config(2, sequence_parallel=True))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scope = numscope.watch(model)
        for step in range(STEPS):
            optimizer.zero_grad()
            if how == "gpt":
                loss_of(model, (batch() + step) % VOCABULARY).backward()
            else:
                model(sequence(rank, 2) + step).square().mean().backward()
                for name, p in model.named_parameters():
                    if how == "summed" and p.grad is not None and name in ("norm.weight", "norm.bias", "linear_fc2.bias"):
                        dist.all_reduce(p.grad)
            optimizer.step()
            dist.barrier()
        return brief(scope)


def test_norm_gradients_that_nobody_sums_over_tensor_parallel_ranks(ranks: RankPool) -> None:
    """Megatron-LM #1446: with sequence parallelism a norm's gradient is of each rank's own part of the sequence."""
    alert = only(ranks.run(train_megatron, "not summed"))
    assert alert["parameters"] == ["norm.weight", "norm.bias", "linear_fc2.bias"]
    assert (alert["step"], alert["gradients agree"], alert["asks"]) == (1, False, False)


@pytest.mark.parametrize("how", ["summed", "gpt"])
def test_healthy_megatron_is_silent(ranks: RankPool, how: str) -> None:
    assert [t.value for t in ranks.run(train_megatron, how)] == [[], []]


def test_norm_weights_that_drift_beside_full_sharding(four_ranks: RankPool) -> None:
    """In two dimensions: FSDP2 shards the norm over data ranks, and nothing says that tensor parallel ranks hold the same shard."""
    alert = only(four_ranks.run(train_split, "sharded, clipped"))
    assert (alert["parameters"], alert["ranks"], alert["step"]) == (["norm.weight", "norm.bias"], [0, 1], 2)


def test_healthy_tensor_parallelism_beside_full_sharding_is_silent(four_ranks: RankPool) -> None:
    assert [t.value for t in four_ranks.run(train_split, "sharded")] == [[]] * 4


def test_healthy_tensor_parallelism_is_silent(ranks: RankPool) -> None:
    """All ranks get the same data on purpose."""
    assert [t.value for t in ranks.run(train_split, "")] == [[], []]


# ---- more that is healthy


def train_otherwise(rank: int, how: str) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    net = Net()
    model: Any = net
    if how.startswith(("fsdp2", "hsdp")):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")) if how.startswith("hsdp") else None
        for part in (net.first, net.last) if "by layer" in how else ():  # none of the graph's parameters is the model's own then
            fully_shard(part, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        if "in part" in how:
            model = net
            fully_shard(net.first, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        else:
            model = fully_shard(net, mesh=mesh or init_device_mesh("cpu", (dist.get_world_size(),)))
    elif how == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=True)
    else:
        model = DDP(net, gradient_as_bucket_view=how == "zero", static_graph=how == "compressed")
    if how == "compiled inside":
        model = DDP(torch.compile(net, backend="aot_eager"))
    elif how == "compiled around":
        model = torch.compile(model, backend="aot_eager")
    if how == "compressed":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        model.register_comm_hook(None, fp16_compress_hook)
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if how == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    average = torch.optim.swa_utils.AveragedModel(net) if how == "ema" else None
    scope = numscope.watch(model)
    join = model.join() if how == "join" else contextlib.nullcontext()
    with join:
        for i, x in enumerate(batches(rank, STEPS + (3 if how == "join" and rank else 0))):
            accumulates = how == "accumulation" and i % 2 == 0
            with model.no_sync() if accumulates else contextlib.nullcontext():
                model(x).square().mean().backward()
            if "clipped" in how and "late" not in how:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if not accumulates:
                if how == "fsdp2 in part, averaged":
                    averaged(net.last)
                optimizer.step()
                if "late" in how:
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.zero_grad()
                if average is not None and rank == 0:
                    average.update_parameters(net)
            if how == "evaluation" and rank == 0:
                net.eval()
                with torch.no_grad():
                    net(x)
                net.train()
            if how == "hsdp written" and rank == 3 and i == 1:
                with torch.no_grad():
                    net.first.weight._local_tensor += 1  # type: ignore[operator]
    return brief(scope)


HEALTHY = (
    "fsdp2",
    "fsdp2 by layer, clipped",
    "fsdp2 in part, averaged",
    "fsdp1",
    "zero",
    "compressed",
    "accumulation",
    "ema",
    "evaluation",
    "join",
)


@pytest.mark.parametrize("how", [*HEALTHY, "compiled inside", "compiled around"])
def test_other_healthy_runs_on_ranks_are_silent(ranks: RankPool, how: str) -> None:
    told = ranks.run(train_otherwise, how)
    assert [t.value for t in told] == [[], []]
    assert [line for t in told for line in t.stderr.splitlines() if "numscope: alert" in line] == []


def test_what_is_left_out_of_sharding_is_compared(ranks: RankPool) -> None:
    """UniRL #7: ``fully_shard`` on the blocks alone, and nothing averages the gradients of the rest."""
    alert = only(ranks.run(train_otherwise, "fsdp2 in part"))
    assert alert["rule"] == "replicas differ" and not alert["asks"]
    assert (alert["parameters"], alert["step"]) == (["last.weight"], 1)  # the bias moves by the rate alone, as Adam does at first


def test_clipping_after_the_step_is_named_where_each_layer_is_sharded(ranks: RankPool) -> None:
    first, *_ = ranks.run(train_otherwise, "fsdp2 by layer, clipped late")
    assert "clipped after the step" in first.stderr


def test_hybrid_sharding_is_silent(four_ranks: RankPool) -> None:
    assert [t.value for t in four_ranks.run(train_otherwise, "hsdp")] == [[]] * 4


def test_replicas_of_a_shard_are_compared(four_ranks: RankPool) -> None:
    """Ranks 1 and 3 hold the same half; another one's alert would be of other ranks."""
    first, second, *others = (t.value for t in four_ranks.run(train_otherwise, "hsdp written"))
    assert not first and not any(others)
    assert [(a["parameters"], a["step"], a["ranks"]) for a in second] == [(["first.weight"], 2, [1, 3])]


def train_gan(rank: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    maker, judge = DDP(Net()), DDP(nn.Linear(2, 1))
    of_maker, of_judge = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
    scopes = [numscope.watch(maker), numscope.watch(judge)]
    for x, noise in zip(batches(rank), batches(50 + rank), strict=True):
        of_judge.zero_grad()
        real_and_fake = torch.cat([x[:, :2], maker(noise).detach()])
        judge(real_and_fake).square().mean().backward()
        of_judge.step()
        of_maker.zero_grad()
        judge(maker(noise)).mean().backward()
        of_maker.step()
    return [alert for scope in scopes for alert in brief(scope)]


def test_healthy_gan_on_ranks_is_silent(ranks: RankPool) -> None:
    assert [t.value for t in ranks.run(train_gan)] == [[], []]


def train_local(rank: int) -> list[dict[str, Any]]:
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook

    torch.manual_seed(0)
    model = DDP(Net())
    model.register_comm_hook(PostLocalSGDState(None, dist.new_group([rank]), 0, post_local_gradient_allreduce=False), post_localSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scope = numscope.watch(model)
    for x in batches(rank):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        dist.barrier()
    return brief(scope)


def test_local_sgd_is_asked_about(ranks: RankPool) -> None:
    """A communication hook says that gradients may differ on purpose."""
    alert = only(ranks.run(train_local))
    assert alert["rule"] == "replicas differ" and alert["asks"]


def train_scaled(rank: int) -> list[bool]:
    """Each rank's scaler looks at its own gradients alone, and the script's collectives keep the ranks together."""
    torch.manual_seed(0)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    skipped = []
    with numscope.watch(model):
        for step, x in enumerate(batches(rank)):
            optimizer.zero_grad()
            scaler.scale(model(x).square().mean()).backward()
            if rank == 1 and step in (1, 3, 4):
                model.module.last.weight.grad[0, 0] = torch.inf
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            skipped.append(scaler.get_scale() < before)
            dist.barrier()
    return skipped


def test_steps_that_one_rank_leaves_out_make_nobody_wait(ranks: RankPool) -> None:
    """fairscale #180: a GradScaler that looks at one rank's shard."""
    assert [t.value for t in ranks.run(train_scaled)] == [[False] * STEPS, [step in (1, 3, 4) for step in range(STEPS)]]


class Halves(nn.Module):
    """A layer of which each rank has a part, by collectives of the script's own, between others that each rank holds whole."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.first, self.part, self.last = nn.Linear(4, 8), nn.Linear(8, 4, bias=False), nn.Linear(8, 2)
        nn.init.constant_(self.part.weight, 0.1 * (rank + 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.cat([self.part(self.first(x).relu()), x], 1))


def train_halves(rank: int, how: str) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    model = Halves(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scope = numscope.watch(model)
    for x in batches(rank, 24):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        averaged(model.first)
        if how == "both":
            averaged(model.last)
        optimizer.step()
        dist.barrier()
    return brief(scope)


def test_weights_that_part_beside_others_that_are_trained_alike_are_asked_about(ranks: RankPool) -> None:
    """Megatron-LM #1446: each rank has a part of the layers, and nothing sums up a norm's gradients."""
    alert = only(ranks.run(train_halves, "one"))
    assert alert["rule"] == "replicas differ" and alert["asks"]
    assert alert["parameters"] == ["last.weight", "last.bias"]


def test_parts_of_layers_beside_weights_that_are_trained_alike_are_silent(ranks: RankPool) -> None:
    assert [t.value for t in ranks.run(train_halves, "both")] == [[], []]
