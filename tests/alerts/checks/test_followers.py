"""Averages and target networks that do not follow the model, and copies that are the model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from numscope.alerts.checks import followers
from numscope.records.alert import Alert
from tests.alerts.checks.silent import Net, alerts_of, batches, one

RULES = (FOLLOW, SAME) = ("copy does not follow", "copy is the model")
Follow = Callable[[nn.Module], None]


def trained(model: nn.Module, follow: Follow, steps: int = 6) -> list[Alert]:
    optimizer = SGD(model.parameters(), lr=1e-2)

    def training() -> None:
        for x, y in batches(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            follow(model)

    return [alert for alert in alerts_of(model, training) if alert.rule in RULES]


def averaged(
    decay: float | None = None, average: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
) -> tuple[nn.Module, AveragedModel]:
    torch.manual_seed(0)
    model = Net()
    if decay is not None:
        return model, AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    return model, AveragedModel(model, avg_fn=average)


def test_an_average_with_a_decay_of_1_is_named() -> None:
    model, ema = averaged(decay=1.0)
    alert = one(trained(model, ema.update_parameters), FOLLOW)
    assert not alert.asks and alert.text.startswith("An AveragedModel of Net has averaged ")
    model, ema = averaged(decay=0.9)
    assert trained(model, ema.update_parameters) == []


def test_an_average_whose_parts_sum_to_more_than_1_is_named() -> None:
    model, ema = averaged(average=lambda mean, new, num: 0.99 * mean + new)
    alert = one(trained(model, ema.update_parameters), FOLLOW)
    assert not alert.asks and "no average of it can have that" in alert.text
    assert alert.value is not None and alert.limit is not None and alert.value > 2 * alert.limit
    model, ema = averaged()
    assert trained(model, ema.update_parameters) == []


@pytest.mark.parametrize("updates", [False, True])
def test_an_average_that_nothing_updates_is_asked_about_at_the_end(updates: bool) -> None:
    model, ema = averaged()
    alerts = trained(model, ema.update_parameters if updates else lambda model: None, 110)
    assert [(alert.rule, alert.asks) for alert in alerts] == ([] if updates else [(FOLLOW, True)])


def test_a_copy_that_a_name_says_follows_and_does_not_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "UNMOVED", 3)
    for name, in_place, said in (("ema_model", False, [FOLLOW]), ("ema_model", True, []), ("teacher", False, []), ("frame", False, [])):
        model = Net()
        held = SimpleNamespace(**{name: copy.deepcopy(model).requires_grad_(False)})

        def follow(model: nn.Module, held: SimpleNamespace = held, name: str = name, in_place: bool = in_place) -> None:
            for p, q in zip(getattr(held, name).parameters(), model.parameters(), strict=True):
                if in_place:
                    p.lerp_(q.detach(), 0.1)
                else:
                    p = 0.9 * p + 0.1 * q.detach()

        alerts = trained(model, follow)
        assert [alert.rule for alert in alerts] == said
        assert all(alert.asks and f"The weights of {name} (Net) have not moved in" in alert.text for alert in alerts)


class Agent:
    """Q-learning with a target network that is to follow."""

    def __init__(self, is_trained: bool) -> None:
        torch.manual_seed(0)
        self.online = Net(dropout=0.0)
        self.target = copy.deepcopy(self.online)
        trains = [*self.online.parameters(), *(self.target.parameters() if is_trained else ())]
        self.optimizer, self.detach = Adam(trains, lr=1e-2), not is_trained

    def train(self) -> None:
        for x, _ in batches(6):
            with torch.set_grad_enabled(not self.detach):
                target = 0.9 * self.target(x.flip(0)).amax(1)
            self.optimizer.zero_grad()
            F.mse_loss(self.online(x)[:, 0], target).backward()
            self.optimizer.step()


@pytest.mark.parametrize("is_trained", [True, False])
def test_a_target_network_in_the_optimizer_is_asked_about(is_trained: bool) -> None:
    agent = Agent(is_trained)
    alerts = [alert for alert in alerts_of(agent.online, agent.train) if alert.rule in RULES]
    assert [alert.rule for alert in alerts] == [FOLLOW] * is_trained
    assert all(alert.asks and alert.text.startswith("Adam trains the model and target (Net), which began") for alert in alerts)


@pytest.mark.parametrize("assign", [True, False])
def test_a_copy_that_is_given_the_model_s_own_memory_is_asked_about(assign: bool) -> None:
    model, target = Net(), Net()
    target.load_state_dict(model.state_dict(), assign=assign)
    alerts = trained(model, lambda model: None)
    assert [alert.rule for alert in alerts] == [SAME] * assign
    assert all(alert.asks and alert.text.startswith("4 of 4 weights of another Net lie in the model's memory") for alert in alerts)


@pytest.mark.parametrize(("name", "said"), [("target_net", [SAME]), ("shown", [])])
def test_a_target_that_is_a_shallow_copy_is_asked_about(name: str, said: list[str]) -> None:
    model = Net()
    held = SimpleNamespace(**{name: copy.copy(model)})
    assert [alert.rule for alert in trained(model, lambda model: None)] == said
    assert held
