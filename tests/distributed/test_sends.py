"""What a script sends, receives and reduces by itself: nothing of ours waits for it, and a bad number that came from a rank is told so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import numscope
from numscope.config.options import WatchOptions
from numscope.scope.autowatch import AutoWatch
from tests.distributed.ranks import RankPool
from tests.tape import line_of


def receive_first(mine: Tensor, theirs: Tensor, other: int) -> None:
    works = [dist.irecv(theirs, other), dist.isend(mine, other)]  # receive_first
    for work in works:
        work.wait()


def send_first(mine: Tensor, theirs: Tensor, other: int) -> None:
    works = [dist.isend(mine, other), dist.irecv(theirs, other)]
    for work in reversed(works):
        work.wait()


def in_a_batch(mine: Tensor, theirs: Tensor, other: int) -> None:
    operations = [dist.P2POp(dist.irecv, theirs, other), dist.P2POp(dist.isend, mine, other)]
    for work in dist.batch_isend_irecv(operations):  # in_a_batch
        work.wait()


def one_after_the_other(mine: Tensor, theirs: Tensor, other: int) -> None:
    for turn in (0, 1):
        if dist.get_rank() == turn:
            dist.send(mine, other)
        else:
            dist.recv(theirs)  # one_after_the_other


def overlapping(mine: Tensor, theirs: Tensor, other: int) -> None:
    total, first, parts = mine.clone(), mine.clone(), [torch.empty_like(mine) for _ in range(2)]
    works = [dist.all_reduce(total, async_op=True), dist.broadcast(first, 0, async_op=True), dist.all_gather(parts, mine, async_op=True)]
    received = torch.zeros_like(parts[0])  # its shape alone is asked for
    for work in reversed(works):
        work.wait()
    theirs.copy_(received + total + first + parts[other])


WAYS: dict[str, Callable[[Tensor, Tensor, int], None]] = {
    way.__name__: way for way in (receive_first, send_first, in_a_batch, one_after_the_other, overlapping)
}


def exchanging(rank: int, way: str, num_steps: int = 3, bad: bool = False) -> list[float]:
    """Train on what the other rank sends, before the first forward too, with what it sends after the forward as targets.

    Args:
        bad: in the last step, rank 0 sends a nan.
    """
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(num_steps):
        mine, theirs, targets = torch.full((2, 4), float(rank + step)), torch.empty(2, 4), torch.empty(2, 4)
        if bad and rank == 0 and step == num_steps - 1:
            mine[0, 0] = float("nan")
        if step == 0 or not bad:
            WAYS[way](mine, theirs, 1 - rank)
        else:
            theirs.fill_(step)
        optimizer.zero_grad()
        output = model(theirs)
        WAYS[way](mine, targets, 1 - rank)
        loss = (output - targets).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def watched(rank: int, options: dict[str, Any]) -> list[str]:
    """The ways whose results differ from a run without a watch."""
    differ = []
    for way in WAYS:
        expected = exchanging(rank, way)
        with AutoWatch(WatchOptions(**options)) as watch:
            got = exchanging(rank, way)
            if got != expected or [(scope.fault, scope.findings) for scope in watch.scopes] != [("", [])]:
                differ.append(way)
    return differ


@pytest.mark.parametrize("options", [{}, {"level": "sentinel", "replay": False, "alerts": "off"}], ids=["modules", "sentinel"])
def test_no_order_of_sends_and_receives_hangs_or_differs(ranks: RankPool, options: dict[str, Any]) -> None:
    assert [told.value for told in ranks.run(watched, options)] == [[], []]


def receiving_a_nan(rank: int, way: str, num_steps: int) -> Any:
    try:
        with AutoWatch(WatchOptions()):
            exchanging(rank, way, num_steps, bad=True)
    except numscope.NonFiniteError as error:
        culprit = error.finding.culprit
        return culprit and (culprit.op, culprit.line, culprit.detail)
    return None


@pytest.mark.parametrize("num_steps", [1, 3], ids=["what the model is given", "what the loss is given"])
@pytest.mark.parametrize("way", ["receive_first", "in_a_batch", "one_after_the_other"])
def test_nan_that_another_rank_sent_is_told_to_have_come_from_there(ranks: RankPool, way: str, num_steps: int) -> None:
    sender, receiver = (told.value for told in ranks.run(receiving_a_nan, way, num_steps))
    assert sender is None  # its own numbers are good
    op, line, detail = receiver
    assert op == ("c10d.recv_any_source_" if way == "one_after_the_other" else "c10d.recv_")
    assert detail == "It came from another rank, which sent 1 nan of 8 elements."
    assert line == line_of(way, __file__)
