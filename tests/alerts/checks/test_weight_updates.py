"""Weights that nobody trains, that get no gradient, or do not move; and frozen ones that do."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam, AdamW

from tests.alerts.checks.silent import Net, alerts_of, batches, one, train


def test_layer_that_no_optimizer_has_is_asked_about() -> None:
    model = Net()
    alert = one(alerts_of(model, lambda: train(model, Adam(model.last.parameters()))), "parameter without optimizer")
    assert (alert.step, alert.layer, alert.asks) == (3, "first", True)
    assert alert.evidence["parameters"] == ["first.weight", "first.bias"]
    assert alert.text == "Gradients arrive at first.weight, first.bias, but no optimizer uses them."
    assert alert.advice.endswith('switch it off: watch(alerts={"parameter without optimizer": False}).')


def test_gradient_left_from_before_on_a_layer_that_is_not_called_any_more_is_no_question() -> None:
    model = Net()
    model.retired = nn.Linear(4, 4)  # its last step was another model's
    model.retired(torch.ones(1, 4)).sum().backward()
    kept = [p for name, p in model.named_parameters() if not name.startswith("retired")]
    assert alerts_of(model, lambda: train(model, SGD(kept, lr=0.1), 110)) == []


def test_layers_kept_in_a_plain_list_and_given_by_hand_are_not_asked_about() -> None:
    model = Net()
    assert alerts_of(model, lambda: train(model, SGD([*model.parameters()], lr=0.1))) == []


def test_optimizer_made_before_the_model_was_copied_holds_other_tensors() -> None:
    early = Net()
    optimizer = AdamW(early.parameters())
    model = copy.deepcopy(early)
    alert = one(alerts_of(model, lambda: train(model, optimizer)), "parameter without optimizer")
    assert not alert.asks
    assert alert.evidence["parameters"] == ["first.weight", "first.bias", "last.weight", "last.bias"]
    assert "AdamW holds other tensors of the same shapes" in alert.text
    assert "AdamW(model.parameters())" in alert.advice


def test_layer_made_anew_after_the_optimizer_is_named() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    model.last = nn.Linear(8, 3)
    alert = one(alerts_of(model, lambda: train(model, optimizer)), "parameter without optimizer")
    assert (alert.layer, alert.asks) == ("last", False)
    assert "SGD holds other tensors of the same shapes" in alert.text


def test_gradients_that_nobody_updates_by_are_left_alone() -> None:
    model = Net()
    image = torch.randn(16, 4, requires_grad=True)

    def dream() -> None:
        optimizer = SGD([image], lr=0.1)
        for _, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(image), y).backward()
            optimizer.step()

    assert alerts_of(model, dream) == []


def test_optimizer_of_an_earlier_model_that_no_longer_steps_is_not_blamed() -> None:
    earlier = SGD(Net().parameters(), lr=0.1)
    model = Net()

    def attribute() -> None:
        for x, y in batches(6):
            F.cross_entropy(model(x), y).backward()

    assert alerts_of(model, attribute) == []
    assert earlier.param_groups


def test_weights_updated_by_hand_are_left_alone() -> None:
    model = Net()

    def by_hand() -> None:
        for x, y in batches(6):
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for p in model.parameters():
                    assert p.grad is not None
                    p -= 0.1 * p.grad

    assert alerts_of(model, by_hand) == []


class Detached(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(torch.tanh(self.first(x)).detach()))


def test_graph_that_is_detached_between_two_layers_is_asked_about_with_both() -> None:
    model = Detached()
    alert = one(alerts_of(model, lambda: train(model, Adam(model.parameters()))), "parameter without gradient")
    assert alert.layer == "first"
    assert alert.asks
    assert alert.evidence["edge"] == "last"
    assert "detach()" in alert.advice


class Extracted(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            h = torch.tanh(self.first(x))
        return self.last(self.drop(h))


def test_part_of_the_forward_without_gradients_is_asked_about() -> None:
    model = Extracted()
    alert = one(alerts_of(model, lambda: train(model, Adam(model.parameters()))), "parameter without gradient")
    assert alert.evidence["parameters"] == ["first.weight", "first.bias"]
    assert "no_grad()" in alert.advice


class Tasks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.used, self.unused = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(self.body(x).relu())


def test_head_that_is_not_called_is_left_alone() -> None:
    model = Tasks()
    assert alerts_of(model, lambda: train(model, Adam(model.parameters()))) == []


class Masked(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(torch.tanh(self.first(x)))) + 0 * self.side(x)

    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Linear(4, 3)


def test_gradient_that_is_zero_at_all_looks_is_asked_about() -> None:
    model = Masked()
    alert = one(alerts_of(model, lambda: train(model, Adam(model.parameters()), 102)), "parameter without gradient")
    assert (alert.step, alert.layer) == (100, "side")
    assert "exactly zero at each of 5 looks" in alert.text


def test_zero_gradients_of_a_layer_that_begins_at_zero_are_left_alone() -> None:
    model = Net()
    nn.init.zeros_(model.last.weight)
    assert alerts_of(model, lambda: train(model, SGD(model.parameters(), lr=0.1), 102)) == []


@pytest.mark.parametrize("rate", [0.0, 1e-22])
def test_learning_rate_of_0_is_named(rate: float) -> None:
    model = Net()
    alert = one(alerts_of(model, lambda: train(model, SGD(model.parameters(), lr=rate))), "learning rate is 0")
    assert (alert.value, alert.asks) == (rate, False)
    assert f"a learning rate of {rate:g}," in alert.text


def test_warm_up_from_0_is_left_alone() -> None:
    model = Net()
    optimizer = AdamW(model.parameters(), lr=1e-2)

    def warm_up() -> None:
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 3))
        for x, y in batches(8):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()

    assert alerts_of(model, warm_up) == []


def test_warm_up_that_counts_epochs_is_told_by_its_rate() -> None:
    model = Net()
    optimizer = AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: min(1.0, epoch / 3))

    def one_epoch() -> None:
        train(model, optimizer, 12)
        scheduler.step()

    one(alerts_of(model, one_epoch), "learning rate is 0")


def test_group_with_a_rate_of_0_is_asked_about() -> None:
    model = Net()
    groups = [{"params": model.first.parameters(), "lr": 0.0}, {"params": model.last.parameters()}]
    alert = one(alerts_of(model, lambda: train(model, SGD(groups, lr=0.1))), "learning rate is 0")
    assert (alert.layer, alert.asks) == ("first", True)


@pytest.mark.parametrize("kind", ["momentum", "decay"])
def test_frozen_layer_that_an_old_gradient_goes_on_moving_is_named(kind: str) -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9) if kind == "momentum" else AdamW(model.parameters(), weight_decay=0.1)

    def freeze() -> None:
        train(model, optimizer, 1)
        model.first.requires_grad_(False)
        for x, y in batches(5):
            optimizer.zero_grad(set_to_none=False)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    alert = one(alerts_of(model, freeze), "frozen parameter moves")
    assert alert.evidence["parameters"] == ["first.weight", "first.bias"]


def test_frozen_layer_is_left_alone() -> None:
    model = Net()
    model.first.requires_grad_(False)
    assert alerts_of(model, lambda: train(model, AdamW(model.parameters(), weight_decay=0.1))) == []


def test_weights_that_are_put_back_each_step_are_named() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    best = copy.deepcopy(model.last.state_dict())

    def restore() -> None:
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            model.last.load_state_dict(best)

    alert = one(alerts_of(model, restore), "weight does not move")
    assert alert.evidence["parameters"] == ["last.weight", "last.bias"]
    assert alert.evidence["optimizer"] == "SGD"


def test_weights_that_a_clamp_holds_at_its_bounds_are_asked_about() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    model.last.bias.data.copy_(torch.tensor([0.01, -0.01, -0.01]))

    def clamp() -> None:
        for x, _ in batches(6):
            optimizer.zero_grad()
            (model(x) * torch.tensor([-1.0, 2.0, 1.0])).mean().backward()
            optimizer.step()
            model.last.bias.data.clamp_(-0.01, 0.01)

    alert = one(alerts_of(model, clamp), "weight does not move")
    assert alert.evidence["parameters"] == ["last.bias"] and alert.asks


def test_updates_lost_in_rounding_are_another_matter() -> None:
    model = Net()
    with torch.no_grad():
        for p in model.parameters():
            p += 1000.0
    assert [a.rule for a in alerts_of(model, lambda: train(model, SGD(model.parameters(), lr=1e-6)))] == []


def test_layer_that_is_unfrozen_just_before_a_look_is_left_alone() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def unfreeze() -> None:
        model.first.requires_grad_(False)
        train(model, optimizer, 100)
        model.first.requires_grad_(True)
        train(model, optimizer, 2)

    assert alerts_of(model, unfreeze) == []


def test_weights_that_are_put_back_later_are_named() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def restore() -> None:
        train(model, optimizer, 150)
        best = copy.deepcopy(model.last.state_dict())
        for _ in range(160):
            train(model, optimizer, 1)
            model.last.load_state_dict(best)

    assert [(a.step, a.layer) for a in alerts_of(model, restore) if a.rule == "weight does not move"] == [(300, "last")]


def test_expert_whose_first_tokens_come_as_a_window_ends_is_left_alone() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def late() -> None:
        for number, (x, y) in enumerate(batches(6)):
            optimizer.zero_grad()
            hidden = torch.tanh(model.first(x))
            F.cross_entropy(model(x) if number >= 3 else model.last(hidden.detach()), y).backward()
            optimizer.step()

    assert [a.rule for a in alerts_of(model, late) if not a.asks] == []


class Adapted(nn.Module):
    """A layer with an adapter of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.lora_a, self.lora_b = nn.Linear(4, 3), nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.lora_b(self.lora_a(x))


@pytest.mark.parametrize(("frozen", "rules"), [("lora", ["adapters are frozen"]), ("base", [])])
def test_adapters_that_are_frozen_in_place_of_their_base_are_asked_about(frozen: str, rules: list[str]) -> None:
    model = Adapted()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(frozen not in name)
    alerts = alerts_of(model, lambda: train(model, SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)))
    assert [alert.rule for alert in alerts] == rules
    assert all(alert.asks and alert.evidence["parameters"] == ["lora_a.weight", "lora_b.weight"] for alert in alerts)


@pytest.mark.parametrize("in_place", [False, True])
def test_update_by_hand_that_changes_nothing_is_asked_about(in_place: bool) -> None:
    model = Net()

    def training() -> None:
        for x, y in batches(105):
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()
            for p in model.parameters():
                step = -0.1 * p.grad
                p.data.add_(step) if in_place else p.data.add(step)

    assert [(alert.rule, alert.step, alert.asks) for alert in alerts_of(model, training)] == [("nothing moves", 100, True)] * (not in_place)
