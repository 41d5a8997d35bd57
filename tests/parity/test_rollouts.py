"""A rollout engine's weights and log-probabilities: planted errors are named, healthy engines left alone."""

from __future__ import annotations

import copy
import json
from collections import OrderedDict

import pytest
import torch
from torch import nn

import numscope

pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.parity.rollouts import CASES, played, trainer, wrong


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_an_engine_is_told_apart_from_its_trainer(name: str) -> None:
    found = played(name)
    assert wrong(name, *found) == "", "\n".join(map(str, found))
    json.dumps(found[1].document())


def test_planted_errors_would_be_missed_by_a_comparison_that_says_nothing() -> None:
    healthy = played("copied")
    assert all(wrong(name, *healthy) for name, case in CASES.items() if not case.is_healthy)


@pytest.mark.filterwarnings("ignore")
def test_comparing_models_leaves_them_as_they_were() -> None:
    told = trainer()
    one, other = copy.deepcopy(told.model), copy.deepcopy(told.model)
    one.train()
    one.model.layers[0].eval()
    one.model.layers[1].mlp.register_forward_hook(lambda module, given, made: made + torch.rand(()))
    modes, state = [module.training for module in one.modules()], torch.get_rng_state()
    found = numscope.compare_models(one, other, torch.arange(2, 10)[None])
    assert found.differing[0].a == "model.layers.1.mlp" and "weights are equal" not in str(found)
    assert torch.equal(torch.get_rng_state(), state) and [module.training for module in one.modules()] == modes
    assert sum(len(module._forward_hooks) for module in (*one.modules(), *other.modules())) == 1
    assert all(parameter.grad is None for parameter in one.parameters())


def test_the_first_layer_that_computes_otherwise_has_equal_weights() -> None:
    one, other = (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=eps), nn.Linear(4, 2)) for eps in (1e-5, 1e-1))
    other.load_state_dict(one.state_dict())
    found = numscope.compare_models(one, nn.Sequential(OrderedDict(module=other)), torch.ones(3, 4))
    assert [pair.a for pair in found.differing] == ["1", "2"] and found.differing[0].why == "its weights are equal"
    assert str(found).startswith("1 of 3 outputs agree within rounding\n  the first that differs: 1: differ by ")


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(numscope.UsageError, match=r"compare_models: b: got dict, expected a torch\.nn\.Module"):
        numscope.compare_models(nn.Linear(1, 1), {}, torch.ones(1))  # type: ignore[arg-type]
