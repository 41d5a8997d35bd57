"""The same training on one process and on several ranks: where they part is where something was planted."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from numscope.runs.diff import compare
from tests.distributed.ranks import RankPool
from tests.runs.test_diff_watched import CONFIG, SITES, watched
from tests.runs.traced import Tiny, batches

PLANTED = "layers.1.up_proj"


def parallel(rank: int, folder: str, kind: str, planted: bool) -> None:
    torch.manual_seed(0)
    model = Tiny()
    if planted:
        with torch.no_grad():
            model.get_submodule(PLANTED).weight[3, 5] += 0.5
    outer: nn.Module = model
    if kind == "tensor":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        plan = {
            f"layers.{i}.{name}": style()
            for i in range(4)
            for name, style in (("up_proj", ColwiseParallel), ("down_proj", RowwiseParallel))
        }
        parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
    else:
        outer = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with numscope.watch(outer, config=CONFIG, on_nonfinite=None, log_dir=folder):
        for x, y in batches(3):
            if kind == "data":
                x, y = x.chunk(2)[dist.get_rank()], y.chunk(2)[dist.get_rank()]
            optimizer.zero_grad()
            nn.functional.cross_entropy(outer(x), y).backward()
            optimizer.step()


@pytest.mark.parametrize("kind", ["data", "tensor"])
def test_two_ranks_agree_with_one_process(ranks: RankPool, kind: str, tmp_path: Path) -> None:
    ranks.run(partial(parallel, kind=kind, planted=False), str(tmp_path / "two"))
    diff = compare(watched(tmp_path / "one"), str(tmp_path / "two"))
    assert not diff.diverged, diff.first
    assert [s.num_sites for s in diff.steps] == [SITES] * 3
    assert (diff.only_a, diff.only_b) == ((), ())
    # Each rank's loss is the mean over its own half: gradients of outputs are twice those of the whole batch's mean.
    assert [factor for _, factor in diff.factors] == ([2.0] * 3 if kind == "data" else [])


@pytest.mark.parametrize("kind", ["data", "tensor"])
def test_what_is_planted_on_two_ranks_is_found(ranks: RankPool, kind: str, tmp_path: Path) -> None:
    ranks.run(partial(parallel, kind=kind, planted=True), str(tmp_path / "two"))
    diff = compare(watched(tmp_path / "one"), str(tmp_path / "two"))
    assert diff.first is not None and diff.origin is not None
    assert (diff.first.step_a, diff.first.layer_a, diff.first.tensor) == (0, PLANTED, "output")
    assert (diff.origin.verdict, diff.origin.weights) == ("weight", (PLANTED,))
