"""Pipelines of torch.distributed.pipelining compute what they compute without a watch, and all ranks name the stage that was first."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, schedules
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from numscope.config.options import WatchOptions
from numscope.scope.autowatch import AutoWatch
from tests.distributed.ranks import RankPool
from tests.distributed.root import DIVISION, Root
from tests.tape import line_of

FAULT = 2, 1  # step and micro-batch
IN_V = "ZBVZeroBubble"  # a rank's two stages are not its rows of the same order
SINGLE, SEVERAL = ("GPipe", "1F1B"), ("LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", IN_V)


def here(mark: str) -> tuple[str, int]:
    return __file__, line_of(mark, __file__)


class Part(nn.Module):
    """Hands the first feature on as it is: 1 in the micro-batch of the fault, else 0."""

    def __init__(self, index: int, fault: str, seed: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(index if seed is None else seed)
        self.index, self.fault = index, fault
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.fault == f"forward {self.index}" and is_marked(x):
            h = torch.log(-h.abs())  # in the forward
        if self.fault == f"backward {self.index}" and is_marked(x):
            h = Root.apply(h)
        return torch.cat([x[:, :1], x[:, 1:] + self.last(torch.tanh(h))[:, 1:]], -1)


def is_marked(x: Tensor) -> bool:
    return x[0, 0].item() == 1


@contextlib.contextmanager
def watched(options: dict[str, Any] | None) -> Iterator[list[Any]]:
    """As ``numscope run`` watches; None: not at all."""
    if options is None:
        yield []
        return
    with AutoWatch(WatchOptions(**options)) as watch:
        yield [watch]


def wrapped(part: Part, wrap: str, data: Any) -> nn.Module:
    if wrap == "FSDP2":
        return fully_shard(part, mesh=data)
    return DDP(part, process_group=data.get_group()) if wrap == "DDP" else part


def trained(
    rank: int, schedule: str, num_batches: int, fault: str = "", seed: int | None = None, num_steps: int = 4, wrap: str = ""
) -> tuple[list[float], str]:
    """Train a pipeline of two ranks. Returns: the losses, and a digest of this rank's weights.

    Args:
        wrap: on four ranks, what keeps each stage's two replicas alike.
    """
    world, group, data, seed_of_data = 2, None, None, 5
    if wrap:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("stages", "data"))
        rank, group, data = mesh["stages"].get_local_rank(), mesh["stages"].get_group(), mesh["data"]
        seed_of_data += data.get_local_rank()
    indexes = [rank] if schedule in SINGLE else [rank, 2 * world - 1 - rank] if schedule == IN_V else [rank, rank + world]
    parts = [Part(index, fault, seed) for index in indexes]
    num_stages = len(indexes) * world
    stages = [PipelineStage(wrapped(part, wrap, data), part.index, num_stages, torch.device("cpu"), group=group) for part in parts]

    def loss_of(output: Tensor, target: Tensor) -> Tensor:
        loss = (output - target).square().mean()
        if fault == "loss" and is_marked(output):
            loss = loss + torch.log(-loss)  # in the loss
        return loss

    kind = getattr(schedules, f"Schedule{schedule}")
    run = kind(stages[0] if schedule in SINGLE else stages, num_batches, loss_fn=loss_of)
    optimizer = torch.optim.Adam([p for part in parts for p in part.parameters()], lr=0.01)
    generator = torch.Generator().manual_seed(seed_of_data)
    losses: list[float] = []
    for step in range(num_steps):
        x, y = torch.randn(2, num_batches * 2, 6, generator=generator)
        x[:, 0] = 0
        if step == FAULT[0]:
            x[2 * FAULT[1] : 2 * FAULT[1] + 2, 0] = 1
        found: list[Tensor] = []
        optimizer.zero_grad()
        run.step(*((x,) if 0 in indexes else ()), **({"target": y, "losses": found} if num_stages - 1 in indexes else {}))
        optimizer.step()
        losses += [loss.item() for loss in found]
    weights = b"".join(getattr(p, "_local_tensor", p).detach().numpy().tobytes() for part in parts for p in part.parameters())
    return losses, hashlib.sha1(weights, usedforsecurity=False).hexdigest()


# ---- healthy

LEAN = {"level": "sentinel", "replay": False, "alerts": "off"}


def healthy(rank: int) -> list[Any]:
    differ: list[Any] = []
    for schedule in (*SINGLE, *SEVERAL):
        expected = trained(rank, schedule, 4, num_steps=3)
        for options in ({}, LEAN) if schedule in ("1F1B", IN_V) else ({},):
            with watched(options) as watches:
                got = trained(rank, schedule, 4, num_steps=3)
                scopes = tuple(watches[0].scopes)
            seen = [(s.fault, s.num_steps, s.findings, s.contained, s.alerts) for s in scopes]
            if got != expected or seen != [("", 3, [], [], [])] * (1 if schedule in SINGLE else 2):
                differ.append((schedule, options, got, expected, seen))
    return differ


def test_every_schedule_computes_what_it_computes_without_a_watch(ranks: RankPool) -> None:
    for told in ranks.run(healthy):
        assert told.value == []
        assert told.said == []


def alike(rank: int) -> Any:
    """All stages begin with the same weights, as those of models that are seeded on each rank do."""
    with watched({}) as watches:
        trained(rank, "GPipe", 3, seed=0, num_steps=12)
        return [alert.line() for scope in watches[0].scopes for alert in scope.alerts]


def test_stages_of_the_same_kind_are_no_replicas(ranks: RankPool) -> None:
    assert [told.value for told in ranks.run(alike)] == [[], []]


# ---- faults


def faulty(rank: int, schedule: str, fault: str, num_batches: int, wrap: str = "") -> Any:
    try:
        with watched({}):
            trained(rank, schedule, num_batches, fault, wrap=wrap)
    except numscope.NonFiniteError as error:
        f, c = error.finding, error.finding.culprit
        return f.rank, f.step, c and (c.file, c.line)
    return None


def place(fault: str) -> tuple[str, int]:
    return DIVISION if fault.startswith("backward") else here(f"in the {fault.partition(' ')[0]}")


def rank_of(fault: str, schedule: str) -> int:
    index = int(fault.partition(" ")[2] or (1 if schedule in SINGLE else 3))
    return min(index, 3 - index) if schedule == IN_V else index % 2


@pytest.mark.parametrize(
    ("schedule", "num_batches", "fault"),
    [
        *(("1F1B", 4, fault) for fault in ("forward 1", "backward 0")),
        *(("GPipe", 3, fault) for fault in ("forward 0", "backward 1")),
        ("GPipe", 10, "loss"),
    ],
)
def test_fault_of_a_stage_is_named_by_rank_and_line_on_all_ranks(ranks: RankPool, schedule: str, num_batches: int, fault: str) -> None:
    expected = rank_of(fault, schedule), FAULT[0], place(fault)
    assert [told.value for told in ranks.run(faulty, schedule, fault, num_batches)] == [expected, expected]


@pytest.mark.parametrize(
    ("schedule", "fault"),
    [
        ("Interleaved1F1B", "forward 2"),
        *(("InterleavedZeroBubble", fault) for fault in ("loss", "backward 3")),
        *((IN_V, fault) for fault in ("forward 0", "backward 2")),
    ],
)
def test_fault_of_one_of_a_ranks_stages_is_named_on_all_ranks(ranks: RankPool, schedule: str, fault: str) -> None:
    expected = rank_of(fault, schedule), FAULT[0], place(fault)
    assert [told.value for told in ranks.run(faulty, schedule, fault, 4)] == [expected, expected]


# ---- with replicas of each stage


def healthy_replicas(rank: int, wrap: str) -> Any:
    expected = trained(rank, "1F1B", 3, wrap=wrap)
    with watched({}) as watches:
        got = trained(rank, "1F1B", 3, wrap=wrap)
        return got == expected, [(s.fault, s.num_steps, s.findings, s.contained, s.alerts) for s in watches[0].scopes]


@pytest.mark.parametrize("wrap", ["DDP", "FSDP2"])
def test_stages_with_replicas_compute_what_they_compute_without_a_watch(four_ranks: RankPool, wrap: str) -> None:
    assert [told.value for told in four_ranks.run(healthy_replicas, wrap)] == [(True, [("", 4, [], [], [])])] * 4


@pytest.mark.parametrize(("wrap", "fault"), [("DDP", "forward 0"), ("DDP", "loss"), ("FSDP2", "backward 1")])
def test_fault_of_a_stage_with_replicas_is_named_on_all_ranks(four_ranks: RankPool, wrap: str, fault: str) -> None:
    expected = 0 if fault == "forward 0" else 2, FAULT[0], place(fault)  # of replicas that see the same, the lower rank
    assert [told.value for told in four_ranks.run(faulty, "1F1B", fault, 3, wrap)] == [expected] * 4
