"""The training of tests/parity/layouts.py by the schedules of torch.distributed.pipelining, healthy and with faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, schedules

from numscope.parity.judging import ParityVerdict, judge
from numscope.parity.layout import RecordedLayout
from numscope.parity.recording import StepRecorder
from tests.parity.layouts import STEPS, Net, batch, cross_of, sgd


class Stage(nn.Module):
    """Some layers of a model, which number its blocks from 0 again."""

    def __init__(self, net: Net, begins: bool, blocks: list[int], ends: bool) -> None:
        super().__init__()
        if begins:
            self.embed = net.embed
        if blocks:
            self.blocks = nn.ModuleList(net.blocks[i] for i in blocks)
        if ends:
            self.norm, self.head = net.norm, net.head

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) if hasattr(self, "embed") else x
        for block in getattr(self, "blocks", ()):
            x = block(x)
        return self.head(self.norm(x)) if hasattr(self, "head") else x  # type: ignore[no-any-return]


@dataclass
class Pipeline:
    """A pipeline of two ranks.

    Args:
        kind, first, says: as of a ``Case``.
        schedule: of torch's.
        num: micro-batches of a call of it.
        calls: of it in a step.
        divides: whether it divides gradients by ``num`` at its end.
        scale: by which each micro-batch's loss is multiplied; ``spoil``: changes a rank's gradients before the update.
    """

    schedule: str = "GPipe"
    kind: str | None = None
    first: tuple[str, ...] = ()
    says: str = ""
    num: int = 2
    calls: int = 1
    divides: bool = True
    scale: float = 1.0
    spoil: Callable[[int, list[nn.Parameter]], None] = lambda rank, parameters: None


def half_of_the_first(rank: int, parameters: list[nn.Parameter]) -> None:
    for parameter in parameters if rank == 0 else ():
        assert parameter.grad is not None
        parameter.grad.mul_(0.5)


SINGLE = ("GPipe", "1F1B")
LAST = ("head.weight", "head.bias")
HEALTHY = {
    **{name: Pipeline(name) for name in (*SINGLE, "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble")},
    "four micro-batches": Pipeline("1F1B", num=4),
    "accumulated": Pipeline(divides=False, calls=2, scale=0.25),
}
MUTATIONS = {
    "is not divided": Pipeline("1F1B", "factor", LAST, "2 is the world size, the number of micro-batches of a rank", divides=False),
    "is not divided, in turn": Pipeline("Interleaved1F1B", "factor", LAST, "the number of micro-batches of a rank", divides=False),
    # pytorch/torchtitan#1733: each call divides what earlier ones have left too
    "accumulated, and divided at each call": Pipeline(
        kind="micro-batches weighted", first=LAST, says="of 4 on rank 1 counts 1 times", calls=2, scale=0.5
    ),
    # pytorch/torchtitan#2972: the loss is a sum, and divided after backward
    "losses are summed": Pipeline(kind="factor", first=LAST, says="48 times that of the first run", scale=48.0),
    "a stage counts half": Pipeline(
        kind="factor", first=("blocks.0.down.weight", "blocks.0.down.bias"), says="as in 7 of 17 parameters", spoil=half_of_the_first
    ),
}
CASES = HEALTHY | MUTATIONS


def play(rank: int, names: list[str], folder: Path) -> None:
    """These cases, one after the other, on a rank."""
    for name in names:
        train(CASES[name], rank, folder / name)


def train(case: Pipeline, rank: int, folder: Path) -> None:
    torch.manual_seed(5)
    net = Net()
    wholes = [Stage(net, True, [0], False), Stage(net, False, [1], True)]
    parts = [Stage(net, True, [], False), Stage(net, False, [0], False), Stage(net, False, [1], False), Stage(net, False, [], True)]
    own = [wholes[rank]] if case.schedule in SINGLE else [parts[rank], parts[rank + 2]]
    num = 2 * len(own)
    stages = [PipelineStage(one, rank + 2 * i, num, torch.device("cpu")) for i, one in enumerate(own)]

    def loss_of(out: Tensor, labels: Tensor) -> Tensor:
        return cross_of(out, labels) * case.scale

    kind: Any = getattr(schedules, f"Schedule{case.schedule}")
    run = kind(stages[0] if case.schedule in SINGLE else stages, case.num, loss_fn=loss_of, scale_grads=case.divides)
    parameters = [p for one in own for p in one.parameters()]
    optimizer = sgd(parameters)
    recorder = StepRecorder(str(folder), STEPS)
    recorder.open()
    try:
        for one in own:
            recorder.add(one)
        for step in range(STEPS):
            words, labels = batch(step)
            optimizer.zero_grad()
            for some, theirs in zip(words.chunk(case.calls), labels.chunk(case.calls), strict=True):
                run.step(*((some,) if rank == 0 else ()), **({"target": theirs} if rank == 1 else {}))
            case.spoil(rank, parameters)
            optimizer.step()
    finally:
        recorder.close()
    dist.barrier()


def judged(name: str, folder: Path) -> ParityVerdict:
    """What comes of a case that was played, as was the reference."""
    return judge(*(RecordedLayout.read(folder / one) for one in ("whole batch", name, "whole batch, disturbed")))


def is_right(name: str, found: ParityVerdict) -> bool:
    """Whether a verdict names the parameter and the kind."""
    case = CASES[name]
    return found.kind == case.kind and (not case.first or found.parameter in case.first) and case.says in found.text
