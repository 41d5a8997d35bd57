"""A configuration that is edited during the run of several ranks: all take it up at the same step, and nobody waits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from numscope.inspect import following
from tests.distributed.ranks import RankPool
from tests.distributed.test_inspector_ranks import OURS
from tests.distributed.wholes import MLP, batches
from tests.inspect.test_following import write
from tests.inspect.test_inspector import Kept, config


def edited(rank: int, folder: str, edit: Any, look: float) -> Any:
    following.LOOK_S = look * (1 + 3 * rank)  # ranks look at different times
    path, kept = Path(folder) / "stats.yaml", Kept()
    if rank == 0:
        write(path, config("up", ["weight"], ["max"]))
    torch.distributed.barrier()
    model = MLP()
    wrapper = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with numscope.watch(wrapper, config=path, on_nonfinite=None, loggers=[kept]) as scope:
        assert scope._watch.inspector is not None
        for step in range(120):
            if step == 3 and rank == 0:
                write(path, edit)
            optimizer.zero_grad()
            wrapper(batches(rank, count=1)[0]).square().mean().backward()
            optimizer.step()
            time.sleep(0.002 * (1 + rank))
        fault = scope._watch.inspector.fault
    names = sorted({name for name, _, _ in kept.lines})
    return fault, {name: kept.steps(name) for name in names}, kept.lines[-1:]


@pytest.mark.parametrize("look", [0.0, 0.02])
def test_all_ranks_take_an_edit_up_at_the_same_step(ranks: RankPool, look: float, tmp_path: Path) -> None:
    told = ranks.run(edited, str(tmp_path), config("down", ["activation", "wgrad"], ["mean"]), look)
    for t in told:
        assert t.value == told[0].value  # merged numbers too
        fault, steps, _ = t.value
        assert not fault and not any(OURS.search(line) for line in t.stderr.splitlines())
        (first, *_), last = steps["down_activation_mean"], steps["up_weight_max"][-1]
        assert first == last + 1 and 3 < first < 119
        assert steps["down_wgrad_mean"] == list(range(first, 120)) and steps["up_weight_max"] == list(range(first))


def test_a_faulty_edit_is_said_by_one_rank_and_taken_up_by_none(ranks: RankPool, tmp_path: Path) -> None:
    told = ranks.run(edited, str(tmp_path), config("down", ["weight"], ["maximum"]), 0.0)
    assert all(list(t.value[1]) == ["up_weight_max"] and len(t.value[1]["up_weight_max"]) == 120 for t in told)
    assert [t.stderr.count("before this edit") for t in told] == [1, 0]
