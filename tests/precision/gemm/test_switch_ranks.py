"""Switches and statistics of casts on several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

import numscope
from numscope.precision.casting.cast import cast
from numscope.precision.gemm.conversion import convert
from numscope.precision.gemm.layer_state import state_of
from tests.distributed.ranks import RankPool

ROWS = (3, 5)  # of each rank's batch


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def trained(rank: int, folder: str, uneven: bool) -> Any:
    model = Net()
    convert(model, "current", layers=["fc1", "fc2"] if rank == 0 or not uneven else ["fc1"])
    wrapper = DDP(model)
    seen: list[Tensor] = []
    model.fc2.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    on = {
        "collect_fp8_tensor_stats": {"enabled": True, "type": ["mse", "overflows"], "tensors": ["activation", "weight"], "freq": 2},
        "disable_fp8_gemm": {"enabled": True, "gemms": ["dgrad"]},
    }
    given = {"s": {"enabled": True, "layers": {"layer_name_regex_pattern": "fc2"}, "transformer_engine": on}}
    with numscope.watch(wrapper, config=given, on_nonfinite=None, log_dir=folder) as scope:
        assert scope._watch.inspector is not None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for step in range(3):
            weight = model.fc2.weight.detach().clone()
            optimizer.zero_grad()
            wrapper(torch.randn(ROWS[rank], 8) + step).square().mean().backward()
            scope._watch.inspector.last = []
            optimizer.step()
            scope._watch.inspector.settle()
            found.append(
                {
                    f"{o.layer}|{o.tensor}": (o.values.get("mse"), o.extras.get("operand_numel"), o.ranks)
                    for o in scope._watch.inspector.last
                }
            )
            found[-1]["seen"] = (seen.pop(), weight)
    state = state_of(model.fc1)
    assert state is not None and state.plan is state.default
    return found


def square_error(x: Tensor) -> float:
    from numscope.precision.gemm.recipes import recipe_of

    how = recipe_of("current").plan()["fprop", "activation"]
    assert how is not None
    values = cast(x, how).values
    assert values is not None
    return ((values.double() - x.double()) ** 2).sum().item()


def test_counts_of_data_add_up_over_ranks_and_those_of_weights_stand_once(ranks: RankPool, tmp_path: Path) -> None:
    told = ranks.run(trained, str(tmp_path), False)
    for step in (0, 2):
        there = [t.value[step] for t in told]
        whole = sum(square_error(one["seen"][0]) for one in there)
        for one in there:
            mse, numel, num_ranks = one["fc2|activation"]
            assert (numel, num_ranks) == (16 * sum(ROWS), 2)
            assert mse == pytest.approx(whole / numel, rel=1e-12)
            assert one["fc2|weight"][1:] == (16 * 8, 1)
            assert one["fc2|weight"][0] == pytest.approx(square_error(one["seen"][1]) / (16 * 8), rel=1e-12)
    assert [set(t.value[1]) for t in told] == [{"seen"}] * 2  # off the schedule
    lines = [(tmp_path / "debug_statistics_logs" / f"globalrank-{rank}.log").read_text().count("fc2_activation_mse") for rank in (0, 1)]
    assert sorted(lines) == [0, 2]  # one rank writes them


def test_rank_whose_layer_is_not_quantized_makes_no_other_rank_wait(ranks: RankPool, tmp_path: Path) -> None:
    told = ranks.run(trained, str(tmp_path), True)
    for step in (0, 2):
        mse, numel, _ = told[0].value[step]["fc2|activation"]
        assert numel == 16 * ROWS[0]
        assert mse == pytest.approx(square_error(told[0].value[step]["seen"][0]) / numel, rel=1e-12)
