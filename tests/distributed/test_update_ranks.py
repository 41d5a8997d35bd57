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
        assert scope._watch.inspector is not None
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        for x in inputs:
            optimizer.zero_grad()
            wrapper(x).square().mean().backward()
            optimizer.step()
        scope._watch.inspector.settle()
        found = reduced(scope._watch.inspector.last)
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


def signs(rank: int, folder: str, how: str) -> Any:
    model = MLP(6)
    wrapper, inputs = BUILDS[how](model)
    what = config(("weight",), stats=["momentum_agreement_pct"])
    with numscope.watch(wrapper, config=what, on_nonfinite=None, log_dir=folder) as scope:
        assert scope._watch.inspector is not None
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        expected = {}
        for x in (*inputs, *inputs):
            optimizer.zero_grad()
            wrapper(x).square().mean().backward()
            for name in ("up", "down") if optimizer.state else ():
                weight = getattr(model, name).weight
                pair = [whole(weight.grad).double(), whole(optimizer.state[weight]["exp_avg"]).double()]
                counted = (pair[0] * pair[1]) != 0
                expected[name] = 100 * float((pair[0].sign() == pair[1].sign())[counted].double().mean())
            optimizer.step()
        scope._watch.inspector.settle()
        return {o.layer: o.values["momentum_agreement_pct"] for o in scope._watch.inspector.last}, expected


@pytest.mark.parametrize("how", BUILDS)
def test_agreement_over_ranks_is_that_of_the_whole_weight(ranks: RankPool, how: str, tmp_path: Path) -> None:
    for t in ranks.run(signs, str(tmp_path), how):
        found, expected = t.value
        assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)
        assert 0 < found["up"] < 100


def stable_ranks(rank: int, folder: str, how: str) -> Any:
    model = MLP(6)
    spectra = {name: torch.linalg.svdvals(getattr(model, name).weight.detach().double()) for name in ("up", "down")}
    wrapper, inputs = BUILDS[how](model)
    with numscope.watch(wrapper, config=config(("weight",), "up|down", stats=["stable_rank"]), on_nonfinite=None, log_dir=folder) as scope:
        assert scope._watch.inspector is not None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        wrapper(inputs[0]).square().mean().backward()
        optimizer.step()
        scope._watch.inspector.settle()
        found = {o.layer: o.values["stable_rank"] for o in scope._watch.inspector.last}
    return found, {name: float(s.square().sum() / s[0] ** 2) for name, s in spectra.items()}


@pytest.mark.parametrize("how", BUILDS)
def test_stable_rank_of_a_replica_is_exact_and_of_a_shard_is_left_out_and_said(ranks: RankPool, how: str, tmp_path: Path) -> None:
    for t in ranks.run(stable_ranks, str(tmp_path), how):
        found, expected = t.value
        if how == "ddp":
            assert found == pytest.approx(expected, rel=1e-12)
        else:
            assert found == {"up": None, "down": None}
            assert t.stderr.count("is divided over ranks: stable_rank and spectral_norm are left out") == 2


def local_gradients(rank: int, folder: str, how: str) -> Any:
    model = MLP(6)
    twin = MLP(6)
    twin.load_state_dict(model.state_dict())
    wrapper, inputs = BUILDS[how](model)
    alone: dict[str, list[Tensor]] = {"up|local_wgrad": [], "down|local_wgrad": []}
    with numscope.watch(wrapper, config=config(("local_wgrad",), "up|down"), on_nonfinite=None, log_dir=folder) as scope:
        assert scope._watch.inspector is not None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for _ in range(2):  # the second step's sites are those of the first, with other parameters under FSDP2
            scope._watch.inspector.settle()
            scope._watch.inspector.last = []
            alone = {key: [] for key in alone}
            for x in inputs:
                wrapper(x).square().mean().backward()
                twin.zero_grad()
                twin(x).square().mean().backward()
                for key in alone:
                    gradient = getattr(twin, key.partition("|")[0]).weight.grad
                    assert gradient is not None
                    alone[key].append(gradient.clone())
            optimizer.step()
            optimizer.zero_grad()
        scope._watch.inspector.settle()
        return reduced(scope._watch.inspector.last), alone


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_local_gradients_are_those_before_any_reduction(ranks: RankPool, how: str, tmp_path: Path) -> None:
    told = ranks.run(local_gradients, str(tmp_path), how)
    for key in ("up|local_wgrad", "down|local_wgrad"):
        parts = [part for t in told for part in t.value[1][key]]
        for t in told:
            check(t.value[0][key], parts, 2)
    assert not any(OURS.search(t.stderr) for t in told)
