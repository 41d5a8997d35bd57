"""Ranks that diverge: one closes its watch early, leaves out a step, runs one more. Training goes on as without a watch, and waits once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from numscope.distributed import agree, reduce
from tests.distributed.ranks import RankPool
from tests.distributed.test_inspector_ranks import config

ANSWER_S = 1.0
STEPS = 6


def train(rank: int, how: str, watches: str, folder: str) -> Any:
    """Each rank trains by itself for a while, as in local SGD, so that a bare run finishes whatever a rank leaves out."""
    were = agree.ANSWER_S, reduce.ANSWER_S, agree.PATIENCE_S
    agree.ANSWER_S = reduce.ANSWER_S = agree.PATIENCE_S = ANSWER_S
    try:
        torch.manual_seed(0)
        model = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scope = None
        if watches != "bare":
            options = {"on_nonfinite": "raise" if "detection" in watches else None}
            scope = numscope.watch(model, log_dir=folder, **options, **({"config": config()} if "statistics" in watches else {}))
        longest = 0.0
        for step in range(STEPS + (rank == 1 and how == "one more")):
            began = time.monotonic()
            with model.no_sync():
                optimizer.zero_grad()
                model(torch.full((2, 4), 1.0 + step)).square().mean().backward()
            if not (how == "leaves out a step" and rank == 1 and step == 2):
                optimizer.step()
            if how == "closes early" and rank == 1 and step == 2 and scope is not None:
                scope.close()
            longest = max(longest, time.monotonic() - began) if step else 0.0
        total = sum(p.double().sum() for p in model.parameters())
        dist.all_reduce(total)  # the run's own group works as ever
        if scope is not None:
            scope.close()
        return total.item(), longest
    finally:
        agree.ANSWER_S, reduce.ANSWER_S, agree.PATIENCE_S = were


@pytest.mark.parametrize(
    ("how", "watches"),
    [
        ("closes early", "detection"),
        ("leaves out a step", "statistics"),
        ("leaves out a step", "detection and statistics"),
        ("one more", "detection"),
        ("one more", "statistics"),
    ],
)
def test_ranks_that_diverge_train_as_bare_and_wait_once(ranks: RankPool, how: str, watches: str, tmp_path: Path) -> None:
    bare, on = (ranks.run(train, how, w, str(tmp_path)) for w in ("bare", watches))
    assert [t.value[0] for t in on] == [t.value[0] for t in bare]
    for t in on:
        said = [line for line in t.said if "from now on rank" in line]
        assert len(said) <= 1 + ("and" in watches)


@pytest.mark.parametrize("how", ["closes early", "leaves out a step", "one more"])
def test_of_four_ranks_the_other_three_go_on_too(four_ranks: RankPool, how: str, tmp_path: Path) -> None:
    bare, on = (four_ranks.run(train, how, w, str(tmp_path)) for w in ("bare", "detection and statistics"))
    assert [t.value[0] for t in on] == [t.value[0] for t in bare]
    assert any("from now on rank" in line for t in on for line in t.said)
