"""The same training on one process and on several ranks: where they part is where something was planted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from numscope.distributed.channel import Channel
from numscope.runs.comparison import compare
from numscope.runs.folder import find_run
from numscope.runs.grouping import group
from tests.distributed.ranks import RankPool
from tests.runs.test_diff_watched import CONFIG, SITES, watched
from tests.runs.traced import Tiny, batches

PLANTED = "layers.1.up_proj"


def parallel(rank: int, folder: str, kind: str, planted: bool, config: Any = CONFIG) -> None:
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
    with numscope.watch(outer, config=config, on_nonfinite=None, log_dir=folder):
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


@pytest.mark.parametrize("kind", ["data", "tensor"])
def test_ranks_that_write_for_readers_to_merge_exchange_nothing(ranks: RankPool, kind: str, tmp_path: Path) -> None:
    told = {}
    for how in (True, "when read"):
        numbers = [t.value for t in ranks.run(partial(merged_when, kind=kind, how=how), str(tmp_path / str(how)))]
        assert (sum(numbers) == 0) is (how == "when read")
        groups = group(find_run(tmp_path / str(how)), "name", ("mean", "max", "l2_norm", "num_nan"), every_steps=1)
        told[how] = {(g.name, g.tensor, g.first_step): (g.summary.numel, *g.values.values()) for g in groups}
    assert told[True].keys() == told["when read"].keys() and len(told[True]) > 50
    for key, values in told[True].items():
        assert told["when read"][key] == pytest.approx(values, rel=1e-12)


def merged_when(rank: int, folder: str, kind: str, how: bool | str) -> int:
    """Returns: how many exchanges there were."""
    stats = {"enabled": True, "stats": ["mean", "max", "l2_norm", "num_nan"], "tensors": ["activation", "weight", "wgrad", "gradient"]}
    config = {"section": {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"}, "statistics": {**stats, "reduce": how}}}
    met = 0
    original = Channel.meet

    def meet(self: Channel, *args: Any, **kwargs: Any) -> Any:
        nonlocal met
        met += 1
        return original(self, *args, **kwargs)

    Channel.meet = meet  # type: ignore[method-assign]
    try:
        parallel(rank, folder, kind, False, config)
    finally:
        Channel.meet = original  # type: ignore[method-assign]
    return met
