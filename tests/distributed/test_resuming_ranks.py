"""Runs of several ranks that go on from a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import numscope
from numscope.alerts.checks import resuming
from tests.distributed.ranks import RankPool

NAME = "state not loaded"


def made(seed: int, spread: bool) -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 5))
    if dist.is_initialized() and spread:
        fully_shard(model)
    wrapped = DistributedDataParallel(model) if dist.is_initialized() and not spread else model
    return model, wrapped, torch.optim.AdamW(model.parameters(), lr=0.01)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, numbers: range, share: int) -> Iterator[int]:
    for step in numbers:
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(100 * share + step))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        yield step


def play(rank: int, folder: Path, process: str, loads: str = "", spread: bool = False, num: int = 6, write: bool = True) -> list[str]:
    """Steps 0 to 5 with a checkpoint after the third; or those from there on."""
    resuming._processes[os.getpid()] = process
    model, wrapped, optimizer = made(7 if loads else 0, spread)
    torch.manual_seed(rank + (50 if loads else 0))
    checkpoint = folder / "checkpoint"
    log_dir, alerts = (folder / "run", None) if write else (None, {NAME: {"run": str(folder / "run")}})
    with numscope.watch(model, on_nonfinite="warn", log_dir=log_dir, alerts=alerts) as scope:
        if loads and spread:
            weights, states = get_state_dict(model, optimizer)
            dcp.load(told := {"model": weights, "optimizer": states}, checkpoint_id=str(checkpoint))
            for state in told["optimizer"]["state"].values():
                state["exp_avg_sq"].mul_(loads != "no moments")
                state["step"].mul_(loads != "no counts")
            told["model"]["2.weight"].add_(loads == "other weights")
            set_state_dict(model, optimizer, model_state_dict=told["model"], optim_state_dict=told["optimizer"])
            if loads == "no optimizer":
                optimizer.state.clear()
        elif loads:
            told = torch.load(checkpoint)
            model.load_state_dict(told["model"])
            optimizer.load_state_dict(told["optimizer"])
        if loads and loads != "no generators":
            torch.set_rng_state(torch.load(folder / f"generator{0 if loads == 'one generator' else rank}"))
        for step in steps(wrapped, optimizer, range(3 if loads else 0, num), rank):
            if step == 2 and not loads:
                torch.save(torch.get_rng_state(), folder / f"generator{rank}")
                if spread:
                    weights, states = get_state_dict(model, optimizer)
                    dcp.save({"model": weights, "optimizer": states}, checkpoint_id=str(checkpoint))
                elif rank == 0:
                    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
    assert not scope.fault
    return [alert.text for alert in scope.alerts]


def test_generators_of_ranks_under_ddp(ranks: RankPool, tmp_path: Path) -> None:
    first = ranks.run(play, tmp_path, "first", "", False, 5)
    assert [told.value for told in first] == [[], []]
    found = {loads: [told.value for told in ranks.run(play, tmp_path, loads, loads, False, 5, False)] for loads in ("all", "one generator")}
    assert found == {"all": [[], []], "one generator": [[], ["Resumed at step 3: rank 1 has rank 0's random state (torch)."]]}


def test_fsdp2_goes_on_in_the_same_and_in_another_layout(ranks: RankPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [told.value for told in ranks.run(play, tmp_path, "first", "", True)] == [[], []]
    found: dict[str, Any] = {}
    for loads in ("all", "no generators", "no optimizer", "no moments", "no counts", "other weights"):
        found[loads] = [told.value for told in ranks.run(play, tmp_path, loads, loads, True, 5, False)]
    monkeypatch.setitem(resuming._processes, os.getpid(), "")
    found["on one rank"] = [play(0, tmp_path, "alone", loads, True, 5, False) for loads in ("all", "no optimizer")]
    lost = "Resumed at step 3: AdamW begins without state (exp_avg, exp_avg_sq, step)."
    assert found == {
        "all": [[], []],
        "no generators": [["Resumed at step 3: the random state of torch is not what was saved."]] * 2,
        "no optimizer": [[lost], [lost]],
        "no moments": [["Resumed at step 3: AdamW's exp_avg_sq is zero in 4 parameters."]] * 2,
        "no counts": [["Resumed at step 3: AdamW's step is 0 in 4 parameters, and was 3."]] * 2,
        "other weights": [["Resumed at step 3: 1 weight of 4 is not what was saved, the first is 2.weight."]] * 2,
        "on one rank": [[], [lost]],
    }
