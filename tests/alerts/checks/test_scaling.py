"""GradScaler's calls in the wrong order, and clipping that clips nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import SGD, Optimizer

import numscope
from tests.alerts.checks.silent import Net, alerts_of, batches, line_of, one


def scaled(model: nn.Module, then: Callable[[torch.amp.GradScaler, Optimizer], object]) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for x, y in batches(6):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        then(scaler, optimizer)
        scaler.update()


def test_right_order_is_left_alone() -> None:
    model = Net()

    def then(scaler: torch.amp.GradScaler, optimizer: Optimizer) -> None:
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)

    assert alerts_of(model, lambda: scaled(model, then)) == []


def test_clipping_before_unscaling_is_named_with_its_line() -> None:
    model = Net()

    def then(scaler: torch.amp.GradScaler, optimizer: Optimizer) -> None:
        clip_grad_norm_(model.parameters(), 1.0)  # too early
        scaler.step(optimizer)

    alert = one(alerts_of(model, lambda: scaled(model, then)), "clipped before unscaling")
    assert alert.step == 0
    assert alert.evidence["line"] == line_of(test_clipping_before_unscaling_is_named_with_its_line, "too early")
    assert alert.evidence["code"] == "clip_grad_norm_(model.parameters(), 1.0)  # too early"
    assert alert.advice == "Call scaler.unscale_(optimizer) before clipping."


def test_clipping_by_value_before_unscaling_is_named() -> None:
    model = Net()

    def then(scaler: torch.amp.GradScaler, optimizer: Optimizer) -> None:
        clip_grad_value_(model.parameters(), 1.0)
        scaler.step(optimizer)

    one(alerts_of(model, lambda: scaled(model, then)), "clipped before unscaling")


def test_optimizer_that_steps_by_itself_with_scaled_gradients_is_named_with_its_line() -> None:
    model = Net()

    def training() -> None:
        optimizer = SGD(model.parameters(), lr=1e-5)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for x, y in batches(6):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            optimizer.step()  # not the scaler

    alert = one(alerts_of(model, training), "step without unscaling")
    assert alert.evidence["line"] == line_of(
        test_optimizer_that_steps_by_itself_with_scaled_gradients_is_named_with_its_line, "not the scaler"
    )


def test_loss_whose_scaled_form_is_dropped_is_named_with_the_backward() -> None:
    model = Net()

    def training() -> None:
        optimizer = SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for x, y in batches(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            scaler.scale(loss)
            loss.backward()  # as it was
            scaler.step(optimizer)
            scaler.update()

    alert = one(alerts_of(model, training), "loss not scaled")
    assert alert.advice == "Call scaler.scale(loss).backward()."
    assert alert.evidence["line"] == line_of(test_loss_whose_scaled_form_is_dropped_is_named_with_the_backward, "as it was")


def test_sum_of_scaled_losses_is_left_alone() -> None:
    model = Net()

    def training() -> None:
        optimizer = SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for x, y in batches(6):
            optimizer.zero_grad()
            out = model(x)
            (scaler.scale(F.cross_entropy(out, y)) + scaler.scale(out.square().mean())).backward()
            scaler.step(optimizer)
            scaler.update()

    assert alerts_of(model, training) == []


def test_other_models_that_train_without_the_scaler_are_left_alone() -> None:
    model, other = Net(), Net()
    mine, its = SGD(model.parameters(), lr=0.1), SGD(other.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def training() -> None:
        for x, y in batches(6):
            its.zero_grad()
            mine.zero_grad()
            scaled_loss = scaler.scale(F.cross_entropy(other(x), y))
            F.cross_entropy(model(x), y).backward()
            mine.step()
            scaled_loss.backward()
            scaler.step(its)
            scaler.update()

    assert alerts_of(model, training) == []


def test_clipping_after_the_step_is_named_with_its_line() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def training() -> None:
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            clip_grad_norm_(model.parameters(), 1.0)  # too late

    alert = one(alerts_of(model, training), "clipped after the step")
    assert alert.evidence["line"] == line_of(test_clipping_after_the_step_is_named_with_its_line, "too late")


@pytest.mark.filterwarnings("ignore:.parameters. is an empty generator")  # torch's; of a filter it says nothing
@pytest.mark.parametrize(("when", "rules"), [("each", ["clipped with each backward"]), ("last", []), ("cleared", []), ("two models", [])])
def test_clipping_of_gradients_that_are_still_adding_up_is_asked_about(when: str, rules: list[str]) -> None:
    model, other = Net(), Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def training() -> None:
        for _ in range(3):
            for number, (x, y) in enumerate(batches(4)):
                if when == "cleared" and number:
                    keep = [p.grad for p in model.parameters()]
                    optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                if when == "two models":
                    F.cross_entropy(other(x), y).backward()
                    clip_grad_norm_(other.parameters(), 1.0)
                if when == "cleared" and number:
                    for p, grad in zip(model.parameters(), keep, strict=True):
                        p.grad.add_(grad)
                if when in ("each", "cleared") or number == 3:
                    clip_grad_norm_(model.parameters(), 1.0)  # each
            optimizer.step()
            optimizer.zero_grad()

    alerts = [a for a in alerts_of(model, training) if a.rule != "gradients cleared between micro-batches"]
    assert [a.rule for a in alerts] == rules
    if rules:
        assert "4 times before SGD's step" in alerts[0].text and alerts[0].asks and alerts[0].step == 1


@pytest.mark.parametrize("exhausted", ["filter", "generator"])
def test_clipping_of_an_iterator_that_is_used_up_is_named_with_its_line(exhausted: str) -> None:
    model = Net()
    parameters = filter(lambda p: p.requires_grad, model.parameters()) if exhausted == "filter" else model.parameters()
    optimizer = SGD(parameters, lr=0.1)

    def training() -> None:
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            clip_grad_norm_(parameters, 1.0)  # used up
            optimizer.step()

    alert = one(alerts_of(model, training), "nothing is clipped")
    line = line_of(test_clipping_of_an_iterator_that_is_used_up_is_named_with_its_line, "used up")
    assert alert.evidence["line"] == line


@pytest.mark.parametrize(("clipped", "rules"), [("part", ["clipped in part"]), ("copy", ["nothing is clipped"]), ("all", []), ("each", [])])
def test_clipping_of_other_parameters_than_the_optimizer_gets_is_named(clipped: str, rules: list[str]) -> None:
    model = Net()
    of_what: list[nn.Module] = {"part": [model.first], "copy": [Net()], "all": [model], "each": [model.first, model.last]}[clipped]
    optimizer = SGD(model.parameters(), lr=0.1)

    def training() -> None:
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            for module in of_what:
                clip_grad_norm_(module.parameters(), 1.0)  # clip
            optimizer.step()

    alerts = alerts_of(model, training)
    assert [alert.rule for alert in alerts] == rules
    for alert in alerts:
        assert alert.evidence["line"] == line_of(test_clipping_of_other_parameters_than_the_optimizer_gets_is_named, "clip")
        assert alert.asks == (clipped == "part")


def test_two_models_of_one_optimizer_are_spoken_of_once() -> None:
    body, head = nn.Linear(4, 5), nn.Linear(5, 3)
    optimizer = SGD([*body.parameters(), *head.parameters()], lr=0.1)
    with numscope.watch(body) as first, numscope.watch(head) as second:
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(head(body(x)), y).backward()
            clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
    assert [alert.rule for alert in (*first.alerts, *second.alerts)] == ["clipped in part"]


def test_iterator_that_holds_parameters_is_clipped_as_it_is_bare() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    norms = []

    def training() -> None:
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            norms.append(clip_grad_norm_(filter(lambda p: p.requires_grad, model.parameters()), 1e-3).item())
            assert sum(float(p.grad.norm()) ** 2 for p in model.parameters() if p.grad is not None) ** 0.5 < 1.1e-3
            optimizer.step()

    assert alerts_of(model, training) == []
    assert min(norms) > 1e-3


def test_norm_that_is_measured_after_the_step_is_left_alone() -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def training() -> None:
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            clip_grad_norm_(model.parameters(), float("inf"))

    assert alerts_of(model, training) == []


def test_first_steps_that_the_scaler_leaves_out_hide_nothing() -> None:
    model = Net()
    broken = {"steps": 6}

    def then(scaler: torch.amp.GradScaler, optimizer: Optimizer) -> None:
        if broken["steps"]:
            broken["steps"] -= 1
            for p in model.parameters():
                assert p.grad is not None
                p.grad.fill_(float("inf"))
            scaler.step(optimizer)
            return
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)

    assert [alert.rule for alert in alerts_of(model, lambda: [scaled(model, then) for _ in range(2)] and None)] == [
        "clipped before unscaling"
    ]


@pytest.mark.parametrize(
    ("clip", "named"),
    [
        (lambda parameters: clip_grad_norm_(parameters, max_norm=0.0), True),
        (lambda parameters: clip_grad_value_(parameters, clip_value=0), True),
        (lambda parameters: clip_grad_norm_(parameters, -1), True),
        (lambda parameters: clip_grad_value_(parameters, 1e-3), False),
        (lambda parameters: clip_grad_norm_(parameters, float("inf")), False),
    ],
)
def test_limit_of_zero_is_named(clip: Callable[[list[nn.Parameter]], object], named: bool) -> None:
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def training() -> None:
        for x, y in batches(4):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            clip(list(model.parameters()))
            optimizer.step()

    found = [(alert.rule, alert.asks) for alert in alerts_of(model, training) if alert.rule.startswith("clipped")]
    assert found == [("clipped to 0", False)] * named


@pytest.mark.parametrize(
    ("then", "named"),
    [
        (lambda parameters: [p.grad.mul_(0.5).add_(0) for p in parameters], True),
        (lambda parameters: [p.grad.mul_(0.5) for p in parameters], True),
        (lambda parameters: parameters[0].grad.mul_(0.5), False),
        (lambda parameters: clip_grad_value_(parameters, 0.1), False),
        (lambda parameters: [p.grad.norm() for p in parameters], False),
    ],
)
@pytest.mark.parametrize(
    "clip", [lambda parameters: clip_grad_norm_(parameters, 1.0), lambda parameters: clip_grad_value_(parameters, 1.0)]
)
def test_gradients_that_change_after_clipping_are_asked_about(
    clip: Callable[..., object], then: Callable[..., object], named: bool
) -> None:
    """Each rank clips its own gradients, and then they are averaged."""
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def training() -> None:
        for x, y in batches(4):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            clip(list(model.parameters()))
            then(list(model.parameters()))
            optimizer.step()

    found = [alert for alert in alerts_of(model, training) if alert.rule == "gradients change after clipping"]
    assert [(alert.step, alert.asks) for alert in found] == [(1, True)] * named
    assert all("4 of 4 gradients are written again between clipping at test_scaling.py:" in alert.text for alert in found)


@pytest.mark.parametrize(
    "clip",
    [
        lambda model: clip_grad_norm_(parameters=model.parameters(), max_norm=1.0),
        lambda model: [p.grad.mul_(0.5) for p in model.parameters() if clip_grad_norm_(model.parameters(), float("inf")) > 0],
    ],
)
def test_other_ways_of_clipping_are_left_alone(clip: Callable[..., object]) -> None:
    """An iterator by keyword; torch's norm, and a factor by hand."""
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)

    def training() -> None:
        for x, y in batches(4):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            clip(model)
            optimizer.step()

    assert alerts_of(model, training) == []
