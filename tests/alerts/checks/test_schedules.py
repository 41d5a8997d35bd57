"""Schedulers that step at the wrong place, too often, or never."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import ChainedScheduler, CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, OneCycleLR, SequentialLR, StepLR

from tests.alerts.checks.silent import Net, alerts_of, batches, line_of, one, train


def step_all(model: nn.Module, optimizer: torch.optim.Optimizer, schedulers: list[LRScheduler], steps: int = 8) -> None:
    for x, y in batches(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()


def test_schedulers_after_each_step_are_left_alone() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    parts: list[LRScheduler] = [LinearLR(optimizer, total_iters=3), CosineAnnealingLR(optimizer, 10)]
    schedulers: list[LRScheduler] = [SequentialLR(optimizer, parts, [3]), LambdaLR(optimizer, lambda step: 0.99**step)]
    assert alerts_of(model, lambda: step_all(model, optimizer, schedulers)) == []


def test_scheduler_after_each_epoch_is_left_alone() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = StepLR(optimizer, 1)

    def epochs() -> None:
        for _ in range(4):
            train(model, optimizer, 5)
            scheduler.step()

    assert alerts_of(model, epochs) == []


def test_scheduler_that_is_wound_forward_is_left_alone() -> None:
    model = Net()
    optimizer = Adam(model.parameters())
    scheduler = StepLR(optimizer, 100)

    def resume() -> None:
        for _ in range(7):
            scheduler.step()
        step_all(model, optimizer, [scheduler])

    assert alerts_of(model, resume) == []


def test_scheduler_that_steps_at_two_places_is_named_with_both() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = CosineAnnealingLR(optimizer, 100)

    def twice() -> None:
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()
            scheduler.step()  # once more

    alert = one(alerts_of(model, twice), "scheduler order")
    assert not alert.asks
    assert "CosineAnnealingLR steps 2 times for one step of SGD" in alert.text
    assert alert.evidence["line"] == line_of(test_scheduler_that_steps_at_two_places_is_named_with_both, "once more")


def test_scheduler_that_steps_once_for_each_rank_is_left_alone() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = CosineAnnealingLR(optimizer, 100)
    assert alerts_of(model, lambda: step_all(model, optimizer, [scheduler, scheduler])) == []


def test_scheduler_that_steps_with_each_micro_batch_is_asked_about() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = CosineAnnealingLR(optimizer, 100)

    def accumulate() -> None:
        for i, (x, y) in enumerate(batches(24)):
            (F.cross_entropy(model(x), y) / 4).backward()
            if i % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            scheduler.step()

    alert = one(alerts_of(model, accumulate), "scheduler order")
    assert alert.asks
    assert "with each backward, 4 times for one step of SGD" in alert.text


def named(step: int, *, num_training_steps: int) -> float:
    """As transformers' schedules are made."""
    return 1.0 - step / (10 * num_training_steps)


@pytest.mark.parametrize(
    "make",
    [
        CosineAnnealingLR,
        lambda optimizer, steps: SequentialLR(optimizer, [LinearLR(optimizer), CosineAnnealingLR(optimizer, steps - 1)], [1]),
        lambda optimizer, steps: LambdaLR(optimizer, partial(named, num_training_steps=steps)),
    ],
)
@pytest.mark.parametrize(("horizon", "rules"), [(3, ["schedule past its end"]), (12, [])])
def test_schedule_that_has_stepped_beyond_its_horizon_is_asked_about(make: Any, horizon: int, rules: list[str]) -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = make(optimizer, horizon)
    found = alerts_of(model, lambda: step_all(model, optimizer, [scheduler]))
    assert [alert.rule for alert in found] == rules
    for alert in found:
        assert alert.asks and "has stepped 4 times" in alert.text and "made for 3" in alert.text


def test_a_chain_that_ends_in_a_cosine_is_followed() -> None:
    """torch's ChainedScheduler has no number of its steps."""
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = ChainedScheduler([LinearLR(optimizer), CosineAnnealingLR(optimizer, 12)])
    assert alerts_of(model, lambda: step_all(model, optimizer, [scheduler])) == []


def test_a_schedule_that_ends_late_is_seen_as_it_ends() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = CosineAnnealingLR(optimizer, 40)

    def training() -> None:
        for x, y in batches(45):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()

    (alert,) = [alert for alert in alerts_of(model, training) if alert.rule == "schedule past its end"]
    assert alert.step == 42 and "has stepped 41 times" in alert.text


def test_scheduler_of_an_optimizer_that_was_made_anew_is_named() -> None:
    model = Net()
    scheduler = StepLR(SGD(model.parameters(), lr=0.1), 2)
    optimizer = Adam(model.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match=r"lr_scheduler\.step\(\)"):
        alert = one(alerts_of(model, lambda: step_all(model, optimizer, [scheduler])), "scheduler order")
    assert "for SGD, which does not step: another one, Adam, updates" in alert.text and not alert.asks


def test_scheduler_that_never_steps_is_asked_about_at_the_end() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = StepLR(optimizer, 3)
    alert = one(alerts_of(model, lambda: train(model, optimizer, 12)), "scheduler never steps")
    assert alert.asks
    assert alert.text == "StepLR was made and never stepped, while SGD did."
    assert scheduler.last_epoch == 0


@pytest.mark.parametrize(("each", "length", "rules"), [(5, 40, ["schedule far from its end"]), (1, 40, []), (5, 8, []), (5, 400, [])])
def test_schedule_of_steps_that_is_stepped_once_an_epoch_is_asked_about_at_the_end(each: int, length: int, rules: list[str]) -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.01)
    scheduler = OneCycleLR(optimizer, 0.01, total_steps=length)

    def training() -> None:
        for _ in range(40 // each - (each == 1)):
            train(model, optimizer, each)
            scheduler.step()

    alerts = [alert for alert in alerts_of(model, training) if alert.rule != "same batch again"]
    assert [alert.rule for alert in alerts] == rules
    assert all(alert.asks and "is made for 40 steps" in alert.text and "has stepped 8 times" in alert.text for alert in alerts)


# ---- schedulers that step at an epoch's start

EPOCH = 5


def at_start(model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: LRScheduler, epochs: int = 4) -> None:
    for _ in range(epochs):
        scheduler.step()
        train(model, optimizer, EPOCH)


def one_earlier(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The scheduler's count is set back, as by ultralytics, so that the first step leads to the first rate."""
    scheduler = LambdaLR(optimizer, lambda epoch: 0.1**epoch)
    scheduler.last_epoch = -1
    at_start(model, optimizer, scheduler)


def warmed_up_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    scheduler = StepLR(optimizer, 1, gamma=0.5)
    for epoch in range(4):
        scheduler.step()
        for i, (x, y) in enumerate(batches(EPOCH)):
            if epoch < 2:
                for group in optimizer.param_groups:
                    group["lr"] = group["initial_lr"] * (epoch * EPOCH + i + 1) / (2 * EPOCH)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def steps_after_many_epochs(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    at_start(model, optimizer, StepLR(optimizer, 30))


def cosine_over_epochs(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    at_start(model, optimizer, CosineAnnealingLR(optimizer, 50))


def polynomial_over_epochs(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    at_start(model, optimizer, LambdaLR(optimizer, lambda epoch: (1 - epoch / 40) ** 0.9))


def wound_by_one(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    scheduler = CosineAnnealingLR(optimizer, 50)
    scheduler.step()  # the first epoch was trained by another process
    step_all(model, optimizer, [scheduler])


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize(
    "epochs", [one_earlier, warmed_up_by_hand, steps_after_many_epochs, cosine_over_epochs, polynomial_over_epochs, wound_by_one]
)
@pytest.mark.parametrize("kind", [SGD, Adam])
def test_scheduler_at_an_epochs_start_that_leaves_nothing_out_is_left_alone(epochs: Any, kind: Any) -> None:
    model = Net()
    assert alerts_of(model, lambda: epochs(model, kind(model.parameters(), lr=0.01))) == []


@pytest.mark.filterwarnings("ignore:Detected call of")
def test_scheduler_with_each_of_two_micro_batches_is_asked_about() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = CosineAnnealingLR(optimizer, 100)

    def accumulate() -> None:
        for i, (x, y) in enumerate(batches(12)):
            (F.cross_entropy(model(x), y) / 2).backward()
            if i % 2:
                optimizer.step()
                optimizer.zero_grad()
            scheduler.step()

    assert "with each backward, 2 times" in one(alerts_of(model, accumulate), "scheduler order").text


@pytest.mark.parametrize(
    ("mode", "metrics", "asked"),
    [
        ("min", [0.5 + 0.05 * i for i in range(8)], True),  # an accuracy
        ("max", [3 - 0.3 * i for i in range(8)], True),  # a loss
        ("max", [0.5 + 0.05 * i for i in range(8)], False),
        ("min", [3.0, 2.0, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5], False),  # a loss that has fallen
        ("min", [1.0, 1.3, 1.2, 1.1, 1.05, 1.02, 1.01, 1.01], False),  # one that comes down to where it was
    ],
)
def test_plateau_of_a_metric_that_only_becomes_worse_is_asked_about(mode: Any, metrics: list[float], asked: bool) -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode, patience=1)

    def training() -> None:
        for metric in metrics:
            train(model, optimizer, 4)
            scheduler.step(torch.tensor(metric) if asked else metric)

    found = [alert for alert in alerts_of(model, training) if alert.rule == "plateau of the wrong sign"]
    assert len(found) == asked
    if found:
        other = "max" if mode == "min" else "min"
        assert found[0].asks and f"mode={other!r}" in found[0].advice and "test_schedules.py" in found[0].text


@pytest.mark.parametrize(("length", "asked"), [(48, True), (12, False), (100, False)])
def test_schedule_made_for_as_many_steps_as_there_are_micro_batches_is_asked_about(length: int, asked: bool) -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    scheduler = CosineAnnealingLR(optimizer, length)

    def accumulate() -> None:
        for i, (x, y) in enumerate(batches(48), 1):
            (F.cross_entropy(model(x), y) / 4).backward()
            if i % 4 == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    found = [alert for alert in alerts_of(model, accumulate) if alert.rule == "schedule far from its end"]
    assert [(alert.value, alert.limit, alert.asks) for alert in found] == [(12, 48, True)] * asked
