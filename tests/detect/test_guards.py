"""Guards: a script that looks at its gradients itself, and does not use bad ones, is not stopped, whatever comes next."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

import numscope

STEPS = 6


def loss_of(model: nn.Module, is_bad: bool) -> Tensor:
    """Its gradient is nan if it is bad: that of a root at 0."""
    out = model(torch.randn(4, 3))
    return (out - out.detach() * is_bad).pow(2).sum(1).sqrt().mean()


def evaluate(model: nn.Module) -> None:
    with torch.no_grad():
        assert model(torch.ones(1, 3)).isfinite().all()


def guarded(model: nn.Module, bad: int, after: Callable[[nn.Module], None], set_to_none: bool) -> None:
    optimizer = SGD(model.parameters(), 0.1)
    for step in range(STEPS):
        loss_of(model, step == bad).backward()
        if torch.isfinite(nn.utils.clip_grad_norm_(model.parameters(), 1.0)):
            optimizer.step()
        optimizer.zero_grad(set_to_none)
        after(model)


def cleared_at_the_beginning(model: nn.Module, bad: int, after: Callable[[nn.Module], None], set_to_none: bool) -> None:
    optimizer = SGD(model.parameters(), 0.1)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none)
        loss_of(model, step == bad).backward()
        if torch.isfinite(nn.utils.clip_grad_norm_(model.parameters(), 1.0)):
            optimizer.step()
        after(model)


def by_closure(model: nn.Module, bad: int, after: Callable[[nn.Module], None], set_to_none: bool) -> None:
    optimizer = SGD(model.parameters(), 0.1)
    for step in range(STEPS):

        def closure(is_bad: bool = step == bad) -> Tensor:
            optimizer.zero_grad(set_to_none)
            loss = loss_of(model, is_bad)
            loss.backward()
            if not all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters()):
                optimizer.zero_grad(set_to_none)
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]
        after(model)


@pytest.mark.parametrize("train", [guarded, cleared_at_the_beginning, by_closure])
@pytest.mark.parametrize("bad", [2, STEPS - 1])
@pytest.mark.parametrize("after", [evaluate, lambda model: None], ids=["evaluation", "nothing"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_what_a_guard_drops_is_a_note(train: Callable[..., None], bad: int, after: Callable[[nn.Module], None], set_to_none: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    with numscope.watch(model, alerts="off") as scope:
        train(model, bad, after, set_to_none)
    assert scope.findings == []
    assert {note.step for note in scope.contained} == {bad}
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("after", [evaluate, lambda model: None], ids=["evaluation", "nothing"])
def test_what_nobody_drops_is_a_finding(after: Callable[[nn.Module], None]) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = SGD(model.parameters(), 0.1)
    scope = numscope.watch(model)
    with contextlib.closing(scope), pytest.raises(numscope.NonFiniteError):
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, step == 3).backward()
            if step != 3:
                optimizer.step()
            after(model)
            optimizer.step()
    assert scope.findings[0].culprit is not None and scope.findings[0].culprit.op == "aten.sqrt_backward"


class Masked(SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            p.grad = torch.where(torch.isfinite(p.grad), p.grad, 0.0)
        return super().step(closure)


class SkipStep(SGD):
    """As public ones do, by a comparison that is false of nan."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if sum(p.grad.norm() for p in self.param_groups[0]["params"]) < 1e3:
            super().step(closure)


class OnlyReports(SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.was_bad = any(torch.isnan(p.grad).any() for p in self.param_groups[0]["params"])
        return super().step(closure)


def with_hook(parameters: Iterator[nn.Parameter], lr: float) -> SGD:
    optimizer = SGD(parameters, lr)
    optimizer.register_step_pre_hook(lambda one, *_: [p.grad.nan_to_num_() for p in one.param_groups[0]["params"]] and None)
    return optimizer


def with_own_step(parameters: Iterator[nn.Parameter], lr: float) -> SGD:
    optimizer = SGD(parameters, lr)

    def step(closure: Any = None, taken: Any = optimizer.step) -> None:
        if all(p.grad.isfinite().all() for p in optimizer.param_groups[0]["params"]):
            taken(closure)

    optimizer.step = step  # type: ignore[assignment]
    return optimizer


@pytest.mark.parametrize("make", [Masked, SkipStep, with_hook, with_own_step])
@pytest.mark.parametrize("bad", [2, STEPS - 1])
def test_what_the_optimizer_repairs_or_refuses_is_a_note(make: Callable[..., SGD], bad: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = make(model.parameters(), 0.1)
    with numscope.watch(model, alerts="off") as scope:
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, step == bad).backward()
            optimizer.step()
    assert scope.findings == []
    assert {note.step for note in scope.contained} == {bad}  # also where SGD's own step, which torch calls hooks for, is called by another
    assert all(p.isfinite().all() for p in model.parameters())


def test_what_an_optimizer_only_looks_at_is_the_finding_behind_its_weights() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = OnlyReports(model.parameters(), 0.1)
    with numscope.watch(model) as scope, pytest.raises(numscope.NonFiniteError):
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, step == 3).backward()
            optimizer.step()
    assert scope.findings[0].step == 3
    assert scope.findings[0].culprit is not None and scope.findings[0].culprit.op == "aten.sqrt_backward"


def test_a_scheduler_around_an_optimizer_of_torchs_looks_at_no_gradient() -> None:
    """It wraps ``step``, whose source names GradScaler's verdict."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    with numscope.watch(model) as scope, pytest.raises(numscope.NonFiniteError):
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, step == 3).backward()
            optimizer.step()
            schedule.step()
    assert scope.findings[0].step == 3
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    "loss",
    [
        lambda out: F.huber_loss(out, torch.full_like(out, math.inf)),  # its gradients are finite, and go to a place that is none
        lambda out: (out.pow(2).sum() * 1e38 * 1e38).clamp(max=math.inf),
        lambda out: out.sum() + torch.tensor(0.0).log(),
        lambda out: F.cross_entropy(out, torch.full((4,), -100)),  # no label counts
    ],
)
def test_a_bad_loss_is_a_finding_though_its_gradients_are_finite(loss: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = SGD(model.parameters(), 0.1)
    with numscope.watch(model) as scope, pytest.raises(numscope.NonFiniteError):
        loss(model(torch.randn(4, 3))).backward()
        optimizer.step()
    assert scope.findings[0].site.phase.value == "loss"


@pytest.mark.parametrize("keeps", [True, False])
def test_loss_of_another_training_is_not_the_watched_models(keeps: bool) -> None:
    """A temperature outside of modules, in an optimizer of its own, goes nan by its own loss: nobody watches it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    optimizer = SGD(model.parameters(), 0.1)
    temperature = torch.zeros(1, requires_grad=True)
    own = torch.optim.Adam([temperature])
    kept = []
    with numscope.watch(model, alerts="off") as scope:
        for step in range(5):
            out = model(torch.randn(6, 8))
            optimizer.zero_grad()
            out.pow(2).mean().backward(retain_graph=keeps)
            optimizer.step()
            own.zero_grad()
            entropy = torch.log(out.detach().mean().abs() - (10 if step == 2 else -1))
            kept.append(out)
            (-(temperature.exp() * (entropy + 3)).sum()).backward()
            own.step()
    assert temperature.isnan().all()
    assert scope.findings == scope.contained == []
