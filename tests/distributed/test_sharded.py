"""FSDP2 and tensor parallelism: names as the author knows them, shards seen, all ranks replay together."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import numscope
from tests.distributed.ranks import RankPool

HERE = __file__


def line_of(mark: str) -> int:
    with open(HERE, encoding="utf-8") as file:
        return next(n for n, text in enumerate(file, 1) if text.rstrip().endswith(f"# {mark}"))


class Spike(torch.autograd.Function):
    """The same forward; its backward is infinite in one place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        gradient[0] = gradient[0] / (gradient[0] * 0)  # in the backward
        return gradient


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor, fault: str = "") -> Tensor:
        h = self.up(x)
        if fault == "forward":
            h = h + torch.log(-h.abs())  # in the forward
        if fault == "backward":
            h = Spike.apply(h)  # before the backward
        return x + self.down(h.relu())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.drop = nn.Dropout(0.1)
        self.bias = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor, fault: str = "") -> Tensor:
        x = self.blocks[0](x)
        x = self.drop(self.blocks[1](x, fault)) + self.bias
        if fault == "beside":
            x = torch.cat([x[:1] * 0 + torch.log(-x[:1].detach().abs() - 1), x[1:]])  # beside what has a gradient
        return x


def shard(net: nn.Module, **options: Any) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in net.blocks:  # type: ignore[union-attr]
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(net, mesh=mesh, **options)


def batches(rank: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + rank)
    return [torch.randn(3, 4, generator=generator) for _ in range(4)]


def digest(model: nn.Module) -> str:
    parts = [getattr(p, "_local_tensor", p).detach().contiguous() for p in model.parameters()]
    return hashlib.sha1(b"".join(p.view(torch.uint8).numpy().tobytes() for p in parts), usedforsecurity=False).hexdigest()


def caught(error: numscope.NonFiniteError) -> dict[str, Any]:
    f = error.finding
    c = f.culprit
    return {
        "step": f.step,
        "rank": f.rank,
        "phase": f.phase.value,
        "line": None if c is None else c.line,
        "reason": None if c is None else c.reason.value,
        "op": None if c is None else c.op,
        "module": None if c is None else c.module,
        "replay": f.replay,
        "site": str(f.site),
        "model": f.model,
    }


def seen(scope: numscope.Scope) -> set[str]:
    """Module, class, phase and slot of all that the step's journal holds."""
    return {
        f"{e.entry.name}|{e.entry.cls}|{e.phase.value}|{slot}"
        for e in scope._watch._detection.evidence.journal.events
        for slot, _, _ in e.items
    }


def fsdp_fault(rank: int, fault: str, fault_rank: int, watch_first: bool) -> dict[str, Any]:
    net = Net()
    if watch_first:
        numscope.watch(net)
    model = shard(net)
    if not watch_first:
        numscope.watch(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    weights = ""
    try:
        for step, x in enumerate(batches(rank)):
            bad = (rank, step) == (fault_rank, 2)
            weights = digest(model)
            if bad and fault == "batch":
                x = x * float("inf")
            optimizer.zero_grad()
            loss = model(x, fault if bad else "").square().mean()
            if bad and fault == "loss":
                loss = loss + torch.log(-loss.detach())  # in the loss
            loss.backward()
            optimizer.step()
    except numscope.NonFiniteError as error:
        return {**caught(error), "untouched": weights == digest(model)}
    return {}


@pytest.mark.parametrize(("fault", "fault_rank"), [("forward", 0), ("backward", 0), ("backward", 1), ("batch", 1), ("loss", 0)])
def test_fsdp2_fault_on_one_rank_is_named_by_all(ranks: RankPool, fault: str, fault_rank: int) -> None:
    told = ranks.run(fsdp_fault, fault, fault_rank, False)
    assert {**told[0].value, "untouched": 0} == {**told[1].value, "untouched": 0}
    value = told[0].value
    assert (value["step"], value["rank"], value["replay"], value["model"]) == (2, fault_rank, "reproduced", "Net")
    assert value["untouched"] and told[1].value["untouched"]
    if fault != "batch":
        assert value["line"] in [line_of(mark) for mark in {"forward": ["in the forward"], "loss": ["in the loss"]}.get(
            fault, ["in the backward", "before the backward"])]  # fmt: skip
    if fault in ("forward", "backward"):
        assert value["module"] == "blocks.1"


def test_sharding_after_watching_is_found_out(ranks: RankPool) -> None:
    told = ranks.run(fsdp_fault, "forward", 1, True)
    assert told[0].value == told[1].value
    assert (told[0].value["rank"], told[0].value["line"]) == (1, line_of("in the forward"))


def fsdp_train(rank: int, watched: bool, reshard: bool, fault: str) -> tuple[Any, ...]:
    torch.manual_seed(7)
    model = shard(Net(), reshard_after_forward=reshard)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    sites: set[str] = set()
    with numscope.watch(model, on_nonfinite="warn") if watched else contextlib.nullcontext() as scope:
        for step, x in enumerate(batches(rank)):
            for k in range(2):
                bad = (rank, step) == (1, 1)
                out = model(x + k, fault if bad and fault == "beside" else "")
                loss = out[1:].square().mean() + out[:1].detach().mean()
                if bad and fault == "loss":  # nan, yet the gradients are not, and the model is done again
                    loss = loss + loss.detach() * float("nan")
                loss.backward()
                losses.append(repr(loss.item()))
            if scope is not None:
                sites |= seen(scope)
            optimizer.step()
            optimizer.zero_grad()
    return losses, digest(model), sorted(sites), [] if scope is None else [(f.step, f.rank) for f in scope.findings]


@pytest.mark.parametrize(("fault", "reshard"), [("", True), ("loss", False), ("loss", True), ("beside", False)])
def test_fsdp2_on_or_off_is_bitwise_the_same_after_a_replay_too(ranks: RankPool, reshard: bool, fault: str) -> None:
    on, off = (ranks.run(fsdp_train, watched, reshard, fault) for watched in (True, False))
    assert [t.value[:2] for t in on] == [t.value[:2] for t in off]
    assert [t.value[3] for t in on] == [[(1, 1)] if fault else []] * 2


def test_fsdp2_weights_inputs_outputs_and_gradients_are_seen_under_the_authors_names(ranks: RankPool) -> None:
    for told in ranks.run(fsdp_train, True, True, ""):
        sites = told.value[2]
        assert not [site for site in sites if "FSDP" in site]
        for site in ("blocks.0.up|Linear|forward|weight", "blocks.0.up|Linear|forward|output", "blocks.1|Block|forward|input[0]",
                     "|Net|forward|bias", "blocks.1.down|Linear|backward|grad output"):  # fmt: skip
            assert site in sites


def fsdp_update(rank: int, bad_step: int, evaluates: bool) -> dict[str, Any]:
    """An update that is bad in the part of the weights that rank 1 keeps."""
    model = shard(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    try:
        with numscope.watch(model):
            for step, x in enumerate(batches(rank)):
                optimizer.param_groups[0]["lr"] = float("inf") if (rank, step) == (1, bad_step) else 0.01
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
                if evaluates:
                    model.eval()
                    with torch.no_grad():
                        model(x)
                    model.train()
            dist.barrier()
    except numscope.NonFiniteError as error:
        return caught(error)
    return {}


@pytest.mark.parametrize(
    ("bad_step", "evaluates"), [(2, False), (3, False), (3, True)], ids=["before another step", "in the last step", "evaluates then"]
)
def test_update_that_is_bad_in_one_ranks_shard_stops_all(ranks: RankPool, bad_step: int, evaluates: bool) -> None:
    told = ranks.run(fsdp_update, bad_step, evaluates)
    assert told[0].value == told[1].value
    assert (told[0].value["phase"], told[0].value["rank"], told[0].value["step"]) == ("optimizer", 1, bad_step)
    assert told[0].value["replay"] == "reproduced" and told[0].value["reason"]


def fsdp_noted(rank: int) -> list[tuple[int, str, int]]:
    model = shard(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with numscope.watch(model, on_nonfinite="warn") as scope:
        for step, x in enumerate(batches(rank)):
            optimizer.param_groups[0]["lr"] = float("inf") if (rank, step) == (1, 1) else 0.01
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                model(x)
    return [(one.step, one.phase.value, one.rank) for one in scope.findings]


def test_what_an_evaluation_hears_early_is_told_once(ranks: RankPool) -> None:
    assert [t.value for t in ranks.run(fsdp_noted)] == [[(1, "optimizer", 1)]] * 2


def fsdp_questions(rank: int) -> list[int]:
    from numscope.distributed import channel

    model, questions = shard(Net()), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    reduced = channel.Channel._reduced
    channel.Channel._reduced = lambda *given: (questions.append(1), reduced(*given))[1]  # type: ignore[method-assign, func-returns-value]
    try:
        with numscope.watch(model):
            for x in batches(rank):
                before = len(questions)
                optimizer.zero_grad()
                model(x).square().mean().backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                questions[before:] = [len(questions) - before]
    finally:
        channel.Channel._reduced = reduced  # type: ignore[method-assign]
    return questions


def test_healthy_step_of_shards_costs_one_question(ranks: RankPool) -> None:
    assert [t.value for t in ranks.run(fsdp_questions)] == [[1, 1, 1, 1]] * 2


def fsdp_evaluation(rank: int) -> Any:
    model = shard(Net())
    with numscope.watch(model, on_nonfinite="warn") as scope, torch.no_grad():
        model(batches(rank)[0], "forward" if rank == 1 else "")
    assert scope.findings == []  # the result reached no training
    return [(note.rank, note.replay) for note in scope.contained]


def test_fsdp2_evaluation_is_judged_by_each_rank_without_a_replay(ranks: RankPool) -> None:
    told = ranks.run(fsdp_evaluation)
    assert told[0].value == []
    [(rank, replay)] = told[1].value
    assert rank == 1 and replay.startswith("not replayed: the model communicates")


class Exploding(nn.Module):
    """Overflows in the part of the hidden units that rank 1 computes."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x)  # in the shard


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(4, 8, bias=False), Exploding(), nn.Linear(8, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))


def tensor_parallel(rank: int, watched: bool, bad: bool, local: bool) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(3)
    net = MLP()
    with torch.no_grad():
        if bad:
            net.up.weight[4:] *= 2000  # rank 1's half
    mesh = init_device_mesh("cpu", (2,))
    parallelize_module(net, mesh, {"up": ColwiseParallel(use_local_output=local), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
    scope = numscope.watch(net) if watched else None
    sites: set[str] = set()
    losses = []
    try:
        for x in batches(0):
            optimizer.zero_grad()
            loss = net(x.abs()).square().mean()
            loss.backward()
            if scope is not None:
                sites |= seen(scope)
            optimizer.step()
            losses.append(loss.item())
    except numscope.NonFiniteError as error:
        return caught(error)
    finally:
        if scope is not None:
            scope.close()
    return losses, digest(net), sorted(sites)


@pytest.mark.parametrize("local", [True, False])
def test_tensor_parallel_on_or_off_is_bitwise_the_same(ranks: RankPool, local: bool) -> None:
    on, off = (ranks.run(tensor_parallel, watched, False, local) for watched in (True, False))
    assert [t.value[:2] for t in on] == [t.value[:2] for t in off]
    for told in on:
        for site in ("up|Linear|forward|weight", "act|Exploding|forward|output", "down|Linear|forward|output", "|MLP|forward|output",
                     "act|Exploding|backward|grad output"):  # fmt: skip
            assert site in told.value[2]


@pytest.mark.parametrize("local", [True, False])
def test_tensor_parallel_fault_in_one_shard_is_named_by_all(ranks: RankPool, local: bool) -> None:
    told = ranks.run(tensor_parallel, True, True, local)
    assert told[0].value == told[1].value
    value = told[0].value
    assert (value["rank"], value["op"], value["line"], value["reason"]) == (1, "aten.exp", line_of("in the shard"), "exp overflow")
