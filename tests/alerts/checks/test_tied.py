"""Weights that were tied and are no longer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

import numscope
from tests.alerts.checks.silent import Net, alerts_of, batches, one, train


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.body(self.embedding(tokens)))


def read(model: nn.Module, steps: int = 5) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for seed in range(steps):
        tokens = torch.randint(11, (4, 7), generator=torch.Generator().manual_seed(seed))
        optimizer.zero_grad()
        F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()


def test_tied_weights_are_left_alone() -> None:
    model = Language()
    assert alerts_of(model, lambda: read(model)) == []


@pytest.mark.parametrize(
    ("layers", "rules"),
    [
        ([nn.Linear(6, 6)] * 3, ["one layer many times"]),
        ([nn.Linear(6, 6) for _ in range(3)], []),
        ([nn.Linear(6, 6), relu := nn.ReLU(), nn.Linear(6, 6), relu], []),  # nothing to share
    ],
)
@pytest.mark.parametrize("kind", [lambda parts: Each(nn.ModuleList(parts)), lambda parts: nn.Sequential(*parts)])
def test_one_layer_in_several_places_of_a_list_is_asked_about(
    kind: Callable[[list[nn.Module]], nn.Module], layers: Any, rules: Any
) -> None:
    model = Language()
    model.body = kind(layers)  # type: ignore[assignment]
    alerts = alerts_of(model, lambda: read(model))
    assert [alert.rule for alert in alerts] == rules
    assert all(alert.asks and "one Linear 3 times" in alert.text and alert.layer.startswith("body") for alert in alerts)


class Each(nn.Module):
    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:  # type: ignore[attr-defined]
            x = layer(x)
        return x


def test_a_part_that_holds_its_whole_is_walked_once(caplog: pytest.LogCaptureFixture) -> None:
    model = Language()
    model.body.whole = model  # type: ignore[assignment]  # registered as its part: named_parameters with duplicates would never end
    assert alerts_of(model, lambda: read(model)) == []
    assert not caplog.records


def test_weights_that_a_reload_untied_are_named() -> None:
    model = Language()

    def reload() -> None:
        model.head.weight = nn.Parameter(copy.deepcopy(model.embedding.weight.data))
        read(model)

    alert = one(alerts_of(model, reload), "untied weights")
    assert (alert.layer, alert.tensor) == ("head", "weight")
    assert alert.text.startswith("head.weight was the same tensor as embedding.weight when the watch began")


def test_weights_that_transformers_configuration_ties_and_are_not_are_named() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())

    def tune() -> None:
        optimizer = SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            tokens = torch.randint(11, (2, 7))
            optimizer.zero_grad()
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()

    model.train()
    alert = one(alerts_of(model, tune), "untied weights")
    assert alert.layer == "lm_head"
    assert alert.evidence["tied"] == ["transformer.wte.weight", "lm_head.weight"]


def test_copies_where_one_parameter_was_meant_are_asked_about() -> None:
    model = Language()
    model.head.weight = nn.Parameter(model.embedding.weight.detach().clone())
    alert = one(alerts_of(model, lambda: read(model)), "untied weights")
    assert alert.asks and alert.evidence["parameters"] == ["embedding.weight", "head.weight"]


class Ensemble(nn.Module):
    def __init__(self, alike: bool) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.second = copy.deepcopy(self.first) if alike else nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return (self.first(x) + self.second(x)) / 2


@pytest.mark.parametrize(("alike", "rules"), [(True, ["equal layers"]), (False, [])])
def test_layers_that_are_equal_and_move_alike_are_named(alike: bool, rules: list[str]) -> None:
    model = Ensemble(alike)
    alerts = alerts_of(model, lambda: train(model, SGD(model.parameters(), lr=0.1)))
    assert [alert.rule for alert in alerts] == rules
    for alert in alerts:
        assert alert.evidence["parameters"] == ["first.weight", "second.weight"] and not alert.asks


def test_copies_that_part_are_left_alone() -> None:
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.Tanh(), copy.deepcopy(layer), nn.Tanh(), nn.Linear(4, 3))
    assert alerts_of(model, lambda: train(model, SGD(model.parameters(), lr=0.1))) == []


@pytest.mark.parametrize(("alike", "rules"), [(True, ["equal layers"]), (False, [])])
def test_models_that_are_equal_and_move_alike_are_asked_about(alike: bool, rules: list[str]) -> None:
    first = nn.Linear(4, 3)
    second = copy.deepcopy(first) if alike else nn.Linear(4, 3)
    optimizer = SGD([*first.parameters(), *second.parameters()], lr=0.1)
    with numscope.watch(first) as one_scope, numscope.watch(second) as other_scope:
        for x, y in batches(6):
            optimizer.zero_grad()
            (F.cross_entropy(first(x), y) + F.cross_entropy(second(x), y)).backward()
            optimizer.step()
    alerts = [*one_scope.alerts, *other_scope.alerts]
    assert [alert.rule for alert in alerts] == rules
    assert all(alert.asks and "of another Linear" in alert.text for alert in alerts)


def test_equal_models_that_are_trained_one_after_the_other_are_left_alone() -> None:
    for _ in range(2):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        assert alerts_of(model, lambda model=model: train(model, SGD(model.parameters(), lr=0.1))) == []  # type: ignore[misc]


@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("of", ["pre-hooks", "parameter"])
def test_hook_that_is_registered_at_each_step_is_asked_about(of: str, removes: bool) -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    register = model.last.weight.register_hook if of == "parameter" else model.last.register_forward_pre_hook

    def training() -> None:
        for x, y in batches(4):
            handle = register(lambda *given: None)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if removes:
                handle.remove()

    assert [(a.rule, a.layer, a.value) for a in alerts_of(model, training)] == [("hooks pile up", "last", 3.0)] * (not removes)


def test_hooks_that_stay_are_left_alone() -> None:
    model = Net()
    for _ in range(4):
        model.last.register_forward_hook(lambda *given: None)
    assert alerts_of(model, lambda: train(model, SGD(model.parameters(), lr=0.1))) == []
