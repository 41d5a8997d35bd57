"""Averages and target networks that do not follow the model, and copies that are the model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Adam
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from numscope.alerts.checks import followers
from numscope.records.alert import Alert
from tests.alerts.checks.silent import Net, alerts_of, batches, one

RULES = (FOLLOW, SAME) = ("copy does not follow", "copy is the model")
Follow = Callable[[nn.Module], None]


def trained(model: nn.Module, follow: Follow, steps: int = 6, dtype: torch.dtype = torch.float32) -> list[Alert]:
    optimizer = SGD(model.parameters(), lr=1e-2)

    def training() -> None:
        for x, y in batches(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(x.to(dtype)), y).backward()
            optimizer.step()
            follow(model)

    return [alert for alert in alerts_of(model, training) if alert.rule in RULES]


def averaged(decay: float) -> tuple[nn.Module, AveragedModel]:
    torch.manual_seed(0)
    model = Net()
    return model, AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))


def test_an_average_with_a_decay_of_1_is_named() -> None:
    model, ema = averaged(decay=1.0)
    alert = one(trained(model, ema.update_parameters), FOLLOW)
    assert not alert.asks and alert.text.startswith("The weights of an AveragedModel of Net, averaged ")
    model, ema = averaged(decay=0.9)
    assert trained(model, ema.update_parameters) == []


def test_an_average_in_float64_that_moves_by_less_than_float32_shows_is_left_alone() -> None:
    model, ema = averaged(decay=1 - 1e-9)
    assert trained(model.double(), ema.double().update_parameters, dtype=torch.float64) == []


@pytest.mark.parametrize("updates", [False, True])
def test_an_average_that_nothing_updates_is_asked_about_at_the_end(updates: bool) -> None:
    model, ema = averaged(decay=0.9)
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


@pytest.mark.parametrize(("moves", "said"), [(False, [FOLLOW]), (True, [])])
def test_a_target_that_has_not_moved_when_the_run_ends_is_asked_about(moves: bool, said: list[str]) -> None:
    model = Net()
    held = SimpleNamespace(target=copy.deepcopy(model).requires_grad_(False))
    written = held.target if moves else copy.deepcopy(held.target)  # the soft update goes to a network that was replaced

    def follow(model: nn.Module) -> None:
        for p, q in zip(written.parameters(), model.parameters(), strict=True):
            p.lerp_(q.detach(), 0.1)

    alerts = trained(model, follow, 110)
    assert [alert.rule for alert in alerts] == said
    assert all(alert.asks and "The weights of target (Net) have not moved in 110 steps" in alert.text for alert in alerts)


@pytest.mark.parametrize(("dtype", "said"), [(torch.bfloat16, [FOLLOW]), (torch.float32, [])])
def test_an_average_in_16_bits_that_rounds_its_updates_away_is_asked_about(dtype: torch.dtype, said: list[str]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4))
    held = SimpleNamespace(ema=copy.deepcopy(model).to(dtype).requires_grad_(False))
    optimizer = Adam(model.parameters(), lr=1e-2)

    def training() -> None:
        generator = torch.Generator().manual_seed(0)
        for _ in range(205):
            x = torch.randn(16, 8, generator=generator)
            optimizer.zero_grad()
            F.mse_loss(model(x), 3 * x[:, :4]).backward()
            optimizer.step()
            with torch.no_grad():
                for p, q in zip(held.ema.parameters(), model.parameters(), strict=True):
                    p.mul_(0.999).add_(q.to(dtype), alpha=0.001)

    alerts = [alert for alert in alerts_of(model, training) if alert.rule in RULES]
    assert [alert.rule for alert in alerts] == said
    assert all(alert.asks and "updates are rounded away" in alert.text for alert in alerts)


@pytest.mark.parametrize(("with_buffers", "said"), [(False, [FOLLOW]), (True, [])])
def test_an_average_whose_batch_norms_keep_their_first_statistics_is_asked_about(with_buffers: bool, said: list[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    held = SimpleNamespace(ema=copy.deepcopy(model).requires_grad_(False))

    def follow(model: nn.Module) -> None:
        for p, q in zip(held.ema.parameters(), model.parameters(), strict=True):
            p.lerp_(q.detach(), 0.1)
        for b, of_model in zip(held.ema.buffers(), model.buffers(), strict=True):
            if with_buffers:
                b.copy_(of_model)

    alerts = trained(model, follow, 110)
    assert [alert.rule for alert in alerts] == said
    assert all(alert.asks and alert.evidence["buffer"] == "1.running_mean" for alert in alerts)


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
