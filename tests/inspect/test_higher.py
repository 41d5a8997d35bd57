"""Sums of third and fourth powers are computed at the steps that ask for what needs them, and nowhere else."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import numscope
from numscope.records.observation import Observation


def part(layer: str, *stats: str, freq: int = 1) -> dict[str, Any]:
    feature = {"enabled": True, "stats": list(stats), "tensors": ["activation", "weight", "gradient"], "freq": freq}
    return {"enabled": True, "layers": {"layer_name_regex_pattern": layer}, "statistics": feature}


def run(config: dict[str, Any], steps: int = 4, **options: Any) -> list[list[Observation]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    with numscope.watch(model, config=config, **options) as scope:
        for _ in range(steps):
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(scope._watch.inspector.last)
    return found


@pytest.mark.parametrize("on_nonfinite", [None, "raise"])
def test_at_the_steps_that_ask_for_it(on_nonfinite: str | None, tmp_path: Path) -> None:
    both = {"often": part("0", "std"), "seldom": part("2", "kurtosis", freq=2)}
    seen = run(both, on_nonfinite=on_nonfinite, log_dir=tmp_path)
    always = run({"all": part("[02]", "std", "kurtosis")}, on_nonfinite=on_nonfinite, log_dir=tmp_path / "b")
    assert [len(found) for found in seen] == [6, 3, 6, 3]
    for step, (found, whole) in enumerate(zip(seen, always, strict=True)):
        right = {one.name: one.values for one in whole}
        for one in found:
            fourth = one.fields["dev_fourth_sum"]
            assert fourth is not None and math.isnan(fourth) is bool(step % 2), (step, one.name)
            asked = "std" if one.layer == "0" else "kurtosis"
            assert one.values[asked] == right[one.name][asked] is not None


def test_a_run_that_did_not_ask_knows_all_else(tmp_path: Path) -> None:
    run({"all": part(".*", "cur_amax")}, on_nonfinite=None, log_dir=tmp_path)
    frame = numscope.load(tmp_path)
    assert frame["kurtosis"].isna().all() and frame["skewness"].isna().all()
    assert frame["std"].notna().all() and frame["l2_norm"].notna().all()
