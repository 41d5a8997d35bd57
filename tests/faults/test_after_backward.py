"""Faults of what scripts do themselves between backward and an optimizer's step: the operation and the line are named."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.records.finding import Reason
from numscope.records.site import Phase
from numscope.replay import outside

Change = Callable[[nn.Module, int], object]
BAD_STEP = 2


def data(step: int) -> Tensor:
    torch.manual_seed(step)
    return torch.randn(8, 4)


def model_of(kind: str) -> nn.Module:
    torch.manual_seed(0)
    hidden = nn.BatchNorm1d(6) if kind == "norms" else nn.Tanh()
    return nn.Sequential(nn.Linear(4, 6), hidden, nn.Linear(6, 1))


def clipped_by_own_norm(model: nn.Module, step: int) -> None:
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    total = torch.stack([g.norm() for g in grads]).norm() * (step != BAD_STEP)
    coefficient = 1 / total  # the fault
    for grad in grads:
        grad.mul_(coefficient)


def centralized(model: nn.Module, step: int) -> None:
    for p in model.parameters():
        if p.grad is not None and p.grad.dim() > 1:
            p.grad = p.grad / (p.grad.abs().amax(1, keepdim=True) * (step != BAD_STEP))  # the fault


def noisy_in_place(model: nn.Module, step: int) -> None:
    for p in model.parameters():
        assert p.grad is not None
        scale = torch.tensor(float(step == BAD_STEP)) * 200
        p.grad += torch.randn_like(p.grad) * torch.exp(scale)  # the fault


def two_tasks(model: nn.Module, step: int) -> None:
    weight = next(model.parameters())
    assert weight.grad is not None
    other = torch.zeros_like(weight.grad) if step == BAD_STEP else torch.ones_like(weight.grad)
    weight.grad = weight.grad - (weight.grad * other).sum() * other / other.square().sum()  # the fault


CHANGES: dict[Change, tuple[str, Reason]] = {
    clipped_by_own_norm: ("reciprocal", Reason.DIVISION_BY_ZERO),
    centralized: ("div", Reason.DIVISION_BY_ZERO),
    noisy_in_place: ("exp", Reason.EXP_OVERFLOW),
    two_tasks: ("div", Reason.DIVISION_BY_ZERO),
}


def line_of(change: Change) -> int:
    lines, first = inspect.getsourcelines(change)
    return first + next(i for i, line in enumerate(lines) if "# the fault" in line)


def train(model: nn.Module, change: Change, *, scaler: torch.amp.GradScaler | None = None, clip: bool = False) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(4):
        loss = model(data(step)).square().mean()
        if scaler is None:
            loss.backward()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        change(model, step)
        optimizer.step()
        if scaler is not None:
            scaler.update()
        optimizer.zero_grad()


@pytest.fixture(params=["plain", "norms"])
def model(request: Any) -> Iterator[nn.Module]:
    yield model_of(request.param)


@pytest.mark.parametrize("how", ["bare", "clipped", "scaled"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_change_of_gradients_is_named(change: Change, how: str, model: nn.Module) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0) if how == "scaled" else None
    with numscope.watch(model, on_nonfinite="raise") as scope, pytest.raises(numscope.NonFiniteError):
        train(model, change, scaler=scaler, clip=how == "clipped")
    finding = scope.findings[0]
    culprit = finding.culprit
    assert culprit is not None, finding.replay
    op, reason = CHANGES[change]
    assert (culprit.op, culprit.reason, culprit.phase) == (f"aten.{op}", reason, Phase.SCRIPT)
    assert (culprit.file, culprit.line, finding.step) == (__file__, line_of(change), BAD_STEP)


def sharpness_aware(model: nn.Module, step: int) -> None:
    """The first half of SAM: weights move to where the loss is highest nearby."""
    for p in model.parameters():
        assert p.grad is not None
        p.data.add_(p.grad / (p.grad.norm() * (step != BAD_STEP)))  # the fault


def sharpness_aware_under_no_grad(model: nn.Module, step: int) -> None:
    with torch.no_grad():
        for p in model.parameters():
            assert p.grad is not None
            p.add_(p.grad / (p.grad.norm() * (step != BAD_STEP)))  # the fault


@pytest.mark.parametrize("change", [sharpness_aware, sharpness_aware_under_no_grad], ids=lambda change: change.__name__)
def test_weights_that_are_moved_between_two_backwards_are_named_where_they_were_moved(change: Change, model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with numscope.watch(model, on_nonfinite="raise") as scope, pytest.raises(numscope.NonFiniteError):
        for step in range(4):
            before = [p.detach().clone() for p in model.parameters()]
            model(data(step)).square().mean().backward()
            change(model, step)
            optimizer.zero_grad()
            model(data(step)).square().mean().backward()
            for p, was in zip(model.parameters(), before, strict=True):
                p.data.copy_(was)
            optimizer.step()
            optimizer.zero_grad()
    culprit = scope.findings[0].culprit
    assert culprit is not None, scope.findings[0].replay
    assert (culprit.op, culprit.reason) == ("aten.div", Reason.DIVISION_BY_ZERO)
    assert (culprit.file, culprit.line, scope.findings[0].step) == (__file__, line_of(change), BAD_STEP)


def infinite_norm_that_is_only_logged(model: nn.Module, step: int) -> None:
    torch.log(torch.zeros(3)).sum()


def own_guard(model: nn.Module, step: int) -> None:
    for p in model.parameters():
        assert p.grad is not None
        bad = p.grad / (p.grad.norm() * (step != BAD_STEP))
        p.grad = bad if bad.isfinite().all() else torch.zeros_like(bad)


@pytest.mark.parametrize("change", [infinite_norm_that_is_only_logged, own_guard], ids=lambda change: change.__name__)
def test_what_reaches_no_gradient_is_no_finding(change: Change, model: nn.Module) -> None:
    with numscope.watch(model, on_nonfinite="raise") as scope:
        train(model, change)
    assert not scope.findings


def test_long_changes_are_recorded_every_16th_time() -> None:
    """Of a model of hundreds of weights gradients are changed one by one: 800 operations."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(150)])
    num_written: list[int] = []

    def change(model: nn.Module, step: int) -> None:
        for p in model.parameters():
            assert p.grad is not None
            p.grad.mul_(1.0).add_(0.0)
        num_written.append(outside.current()._before_step.num_left_out)

    with numscope.watch(model):
        for _ in range(5):
            train(model, change)
    assert num_written == [0, *range(1, 16), 0, *range(1, 4)]


class SecondOrder(torch.optim.Optimizer):
    """Divides by the Hessian's diagonal, as AdaHessian does: its step has a backward of its own."""

    def __init__(self, parameters: Any, spoils: Callable[[], bool]) -> None:
        super().__init__(list(parameters), {})
        self.spoils = spoils

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        parameters = [p for group in self.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters]
        traces = torch.autograd.grad(gradients, parameters, [torch.ones_like(g) for g in gradients], retain_graph=True)
        for p, gradient, trace in zip(parameters, gradients, traces, strict=True):
            scale = trace.abs() * 0 if self.spoils() else trace.abs() + 1
            p.data.addcdiv_(gradient.detach() * (not self.spoils()), scale, value=-0.1)


def test_optimizer_with_a_backward_in_its_step_is_judged_at_that_step() -> None:
    torch.manual_seed(0)
    model, steps = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)), [0]
    optimizer = SecondOrder(model.parameters(), lambda: steps[0] == BAD_STEP)
    with numscope.watch(model, on_nonfinite="raise") as scope, pytest.raises(numscope.NonFiniteError):
        for step in range(5):
            steps[0] = step
            model(data(step)).square().mean().backward(create_graph=True)
            optimizer.step()
            optimizer.zero_grad()
    finding = scope.findings[0]
    assert (finding.step, finding.phase, finding.site.cls) == (BAD_STEP, Phase.OPTIMIZER, "SecondOrder")
    assert "second step raised RuntimeError" in finding.replay  # its graph does not allow that the weights have changed
