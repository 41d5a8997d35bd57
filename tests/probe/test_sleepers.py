"""Models that nobody calls: of other models' training they are told nothing, and they hear again of their own."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import numscope
from numscope.config.options import WatchOptions
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.step import MOST_IDLE, Step
from numscope.records.errors import NonFiniteError
from numscope.scope.autowatch import AutoWatch
from tests.harm.training import assert_nothing_left


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    assert_nothing_left()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def test_dropped_models_that_no_collection_has_found_are_told_nothing() -> None:
    gc.collect()
    gc.disable()
    try:
        with AutoWatch(WatchOptions()) as auto:
            for _ in range(12):
                train(*made(), steps=MOST_IDLE + 2)
            assert len(auto.scopes) == 12, "nothing has collected them"
            assert sum(type(one) is Step and not one.sleeps for one in optimizer_probe._listeners) <= 2
    finally:
        gc.enable()
    gc.collect()


@pytest.mark.parametrize("wakes", ["forward", "optimizer"])
def test_a_model_that_slept_is_watched_again(wakes: str) -> None:
    (first, its), (other, others) = made(), made()
    with numscope.watch(first) as scope, numscope.watch(other):
        train(first, its, 2)
        train(other, others, 3 * MOST_IDLE)
        assert scope._watch.steps.sleeps
        steps = scope.num_steps
        if wakes == "forward":
            train(first, its, 2)
            assert scope.num_steps == steps + 2
            with pytest.raises(NonFiniteError) as caught:
                (first(torch.ones(2, 4)) * torch.inf).sum().backward()
                its.step()
        else:  # gradients that came from elsewhere, as in federated averaging
            first.weight.grad = torch.full_like(first.weight, torch.nan)
            with pytest.raises(NonFiniteError) as caught:
                its.step()
        assert caught.value.finding.step == scope.step_number
