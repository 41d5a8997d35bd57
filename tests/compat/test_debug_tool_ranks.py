"""``debug_tool`` on several ranks: whose numbers merge, and who writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.compat.debugging import Model, collect, read_log, section
from tests.distributed.ranks import RankPool

STATS = ["min", "max", "mean", "std", "l2_norm"]


def part(rank: int) -> torch.Tensor:
    return torch.randn(3 + rank, 4, generator=torch.Generator().manual_seed(rank)) + 5 * rank


def hand_in(rank: int, folder: str, how: str) -> dict[str, float]:
    """A tensor of each rank, one merged as ``how`` says; what the call returns."""
    import torch.distributed as dist

    import numscope.compat.debug_tool as debug_api

    config = section(layers={"layer_types": ["mine"]}, collect_tensor_stats=collect(STATS, ["activation"]))
    debug_api.initialize_debug(config, log_dir=folder)
    group = dist.new_group([0, 1]) if how in ("argument", "set") else None
    more: dict[str, Any] = {"skip_reduction": True} if how == "skip" else {"reduction_group": group} if how == "argument" else {}
    if how == "set":
        debug_api.set_tensor_reduction_group(group)
        assert debug_api.get_tensor_reduction_group() is group
    found = debug_api.log_tensor_stats("mine", "activation", part(rank), **more)
    debug_api.end_debug()
    return {name: value.item() for name, value in found.items()}


def exact(tensor: torch.Tensor) -> list[float]:
    x = tensor.double()
    return [x.min().item(), x.max().item(), x.mean().item(), x.std().item(), x.norm().item()]


def log_of(folder: Path, rank: int) -> list[float]:
    return [line.value for line in read_log(folder / "debug_statistics_logs" / f"globalrank-{rank}.log")]


@pytest.mark.parametrize("how", ["everybody", "argument", "set"])
def test_handed_in_tensors_merge_over_a_group_and_its_lowest_rank_writes(ranks: RankPool, tmp_path: Path, how: str) -> None:
    told = ranks.run(hand_in, str(tmp_path), how)
    whole = exact(torch.cat([part(0), part(1)]))
    for rank in range(2):
        assert list(told[rank].value.values()) == pytest.approx(whole, rel=1e-12)
    assert log_of(tmp_path, 0) == pytest.approx(whole, rel=1e-8)
    assert log_of(tmp_path, 1) == []


def test_handed_in_tensors_of_each_rank_alone_where_reduction_is_skipped(ranks: RankPool, tmp_path: Path) -> None:
    told = ranks.run(hand_in, str(tmp_path), "skip")
    for rank in range(2):
        assert list(told[rank].value.values()) == pytest.approx(exact(part(rank)), rel=1e-12)
        assert log_of(tmp_path, rank) == pytest.approx(exact(part(rank)), rel=1e-8)


def train_apart(rank: int, folder: str) -> None:
    """Two plain models, one a rank, whose activations merge only because the group says so."""
    import torch.distributed as dist

    import numscope.compat.debug_tool as debug_api

    config = section(layers={"layer_types": ["fc1"]}, collect_tensor_stats=collect(STATS, ["activation"]))
    debug_api.initialize_debug(config, log_dir=folder)
    debug_api.set_tensor_reduction_group(dist.new_group([0, 1]))
    net = Model(width=4, depth=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        net(part(rank)).sum().backward()
        optimizer.step()
        debug_api.step()
    debug_api.end_debug()


def test_models_layers_merge_over_the_group_that_was_set_before_the_model_was_seen(ranks: RankPool, tmp_path: Path) -> None:
    ranks.run(train_apart, str(tmp_path))
    whole = exact(torch.cat([part(0), part(1)]))
    assert log_of(tmp_path, 0) == pytest.approx(whole * 2, rel=1e-8)
    assert log_of(tmp_path, 1) == []
