"""What is read around an optimizer's step, on real ranks: states of replicas count once, those of shards are the whole's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from tests.distributed.ranks import RankPool
from tests.distributed.test_inspector_ranks import OURS, build_ddp, build_fsdp, build_tensor_parallel, config, reduced
from tests.distributed.wholes import MLP, check

BUILDS: dict[str, Callable[[nn.Module], Any]] = {
    "ddp": build_ddp,
    "fsdp": partial(build_fsdp, False, False),
    "tensor parallel": partial(build_tensor_parallel, False, False, False),
}
MERGED = {"ddp": 1, "fsdp": 2, "tensor parallel": 2}


def whole(tensor: Any) -> Tensor:
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().clone()


def states(rank: int, folder: str, how: str) -> Any:
    model = MLP(6)
    wrapper, inputs = BUILDS[how](model)
    with numscope.watch(wrapper, config=config(("exp_avg", "exp_avg_sq")), on_nonfinite=None, log_dir=folder) as scope:
        assert scope.inspector is not None
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        for x in inputs:
            optimizer.zero_grad()
            wrapper(x).square().mean().backward()
            optimizer.step()
        found = reduced(scope.inspector.last)
    layers = ("up", "down")
    kept = {f"{n}|{s}": [whole(optimizer.state[getattr(model, n).weight][s])] for n in layers for s in ("exp_avg", "exp_avg_sq")}
    return found, kept


@pytest.mark.parametrize("how", BUILDS)
def test_states_over_ranks_are_those_of_the_whole_weight(ranks: RankPool, how: str, tmp_path: Path) -> None:
    told = ranks.run(states, str(tmp_path), how)
    for t in told:
        found, kept = t.value
        for key, parts in kept.items():
            check(found[key], parts, MERGED[how])
        assert not any(OURS.search(t.stderr) for t in told)
    assert [told[rank].value[0]["up|exp_avg"].writes for rank in (0, 1)] == [True, False]
