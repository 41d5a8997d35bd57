"""Optimizers that forget."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Adam, AdamW

from tests.alerts.checks.silent import Net, alerts_of, batches, line_of, one, train


def test_optimizer_that_is_made_anew_each_step_is_named_with_its_line() -> None:
    model = Net()

    def anew() -> None:
        for x, y in batches(8):
            optimizer = Adam(model.parameters())
            F.cross_entropy(model(x), y).backward()
            optimizer.step()  # the first and last
            optimizer.zero_grad()

    alert = one(alerts_of(model, anew), "optimizer state lost")
    assert alert.step == 3
    assert "Adam begins each of its last 4 steps" in alert.text and "it is made anew each time" in alert.text
    assert alert.evidence["line"] == line_of(test_optimizer_that_is_made_anew_each_step_is_named_with_its_line, "the first and last")


def test_state_that_is_emptied_each_step_is_named() -> None:
    model = Net()
    optimizer = Adam(model.parameters())

    def forget() -> None:
        for x, y in batches(8):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.state.clear()

    assert "or its state is emptied in between" in one(alerts_of(model, forget), "optimizer state lost").text


def test_optimizer_for_each_epoch_or_without_states_is_left_alone() -> None:
    model = Net()

    def epochs() -> None:
        for _ in range(6):
            train(model, Adam(model.parameters()), 5)
        for _ in range(6):
            train(model, SGD(model.parameters(), lr=0.1), 1)

    assert alerts_of(model, epochs) == []


def test_many_optimizers_of_one_model_are_left_alone() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
    optimizers = [Adam(layer.parameters()) for layer in model]

    def training() -> None:
        for x, y in batches(6):
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()
            for optimizer in optimizers:
                optimizer.step()

    assert alerts_of(model, training) == []


def test_steps_that_a_scaler_leaves_out_forget_nothing() -> None:
    model = Net()
    optimizer, scaler = Adam(model.parameters()), torch.amp.GradScaler("cpu", init_scale=1024.0)

    def training() -> None:
        for step, (x, y) in enumerate(batches(8)):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y) * (1e38 if step > 2 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()

    assert {alert.rule for alert in alerts_of(model, training)} == {"scale falls"}


@pytest.mark.parametrize(("backwards", "rules"), [(1, ["parameter in two optimizers"]), (2, [])])
def test_parameter_that_two_optimizers_move_is_asked_about(backwards: int, rules: list[str]) -> None:
    model = Net()
    optimizers = [SGD(model.parameters(), lr=1e-3), SGD(model.last.parameters(), lr=1e-3)]

    def training() -> None:
        for x, y in batches(4):
            for number, optimizer in enumerate(optimizers):
                if number < backwards:
                    model.zero_grad()
                    F.cross_entropy(model(x), y).backward()
                optimizer.step()

    found = [(alert.rule, alert.evidence["parameters"]) for alert in alerts_of(model, training) if "two" in alert.rule]
    assert found == [(rule, ["last.weight", "last.bias"]) for rule in rules]


class Wrapper(SGD):
    """It steps by another optimizer of the same parameters."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.inner.step()


def test_optimizer_within_another_one_is_left_alone() -> None:
    model = Net()
    optimizer = Wrapper(model.parameters(), lr=0.1)
    optimizer.inner = SGD(model.parameters(), lr=0.1)
    assert alerts_of(model, lambda: train(model, optimizer)) == []


@pytest.mark.parametrize("used_up", [True, False])
def test_group_of_an_iterator_that_is_used_up_is_asked_about(used_up: bool) -> None:
    model = Net()
    head = iter(list(model.last.parameters()))
    kept = [] if used_up else list(head)
    list(head)
    optimizer = SGD([{"params": model.first.parameters()}, {"params": kept}, {"params": head}], lr=0.1)
    found = [alert.layer for alert in alerts_of(model, lambda: train(model, optimizer)) if alert.rule == "group without parameters"]
    assert found == ["last"] * used_up


@pytest.mark.parametrize(("by_part", "said"), [(False, ["group without parameters"]), (True, [])])
def test_group_without_decay_whose_names_match_nothing_is_asked_about(by_part: bool, said: list[str]) -> None:
    """mt-dnn #37: a parameter's whole name is looked for in a list of parts."""
    model = Net()
    free = [name for name, _ in model.named_parameters() if ("bias" in name if by_part else name in ["bias"])]
    groups = [[p for name, p in model.named_parameters() if (name in free) is is_free] for is_free in (False, True)]
    optimizer = AdamW([{"params": groups[0], "weight_decay": 0.1}, {"params": groups[1], "weight_decay": 0.0}], lr=1e-3)
    alerts = alerts_of(model, lambda: train(model, optimizer))
    assert [alert.rule for alert in alerts] == said
    assert all(alert.asks and "first.bias, last.bias are in one that decays" in alert.text for alert in alerts)


@pytest.mark.parametrize(("parts", "said"), [(["bias", "LayerNorm.weight"], ["norms decay"]), (["bias", "norm"], []), ([], [])])
def test_norms_whose_names_were_not_found_are_asked_about(parts: list[str], said: list[str]) -> None:
    """transformers #4360, DeepSpeedExamples #755: a list of names that another model's norms have."""
    model = nn.Sequential(OrderedDict(first=nn.Linear(4, 8), norm=nn.LayerNorm(8), last=nn.Linear(8, 3)))
    groups: list[list[nn.Parameter]] = [[], []]
    for name, p in model.named_parameters():
        groups[any(part in name for part in parts)].append(p)
    made = [{"params": groups[0], "weight_decay": 0.1}, {"params": groups[1], "weight_decay": 0.0}]
    optimizer = AdamW([group for group in made if group["params"]], lr=1e-3)
    alerts = alerts_of(model, lambda: train(model, optimizer))
    assert [(alert.rule, alert.asks) for alert in alerts] == [(rule, True) for rule in said]
    assert all("norm.weight are in one that decays" in alert.text or "norm.weight is" in alert.text for alert in alerts)


def test_an_optimizer_that_steps_by_gradients_of_the_script_s_own_is_one() -> None:
    """Evolution strategies, private gradients: ``.grad`` is set, and no backward comes in between."""
    model = Net()
    optimizer = Adam(model.parameters())

    def training() -> None:
        for x, y in batches(6):
            for p, g in zip(model.parameters(), torch.autograd.grad(F.cross_entropy(model(x), y), [*model.parameters()]), strict=True):
                p.grad = g
            optimizer.step()

    assert [alert.rule for alert in alerts_of(model, training) if alert.rule == "parameter in two optimizers"] == []
