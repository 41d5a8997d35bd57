"""Faults of the update: gradients are finite, the weights that come of them are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from numscope.records.finding import Reason
from numscope.records.site import Phase
from tests.faults.planting import ARMED_AT, Fault, Host, Training, planted, train

CATALOG: list[Fault] = []


def optimizer_fault(op: str, **more: Any) -> Callable[[Callable[[], Training]], Callable[[], Training]]:
    return planted(CATALOG, op, Reason.OPTIMIZER_UPDATE, phase=Phase.OPTIMIZER, in_model=False, **more)


def training(optimizer_of: Callable[[Any], torch.optim.Optimizer], loss_of: Callable[[Tensor], Tensor] | None = None) -> Training:
    model = Host(torch.tanh)
    optimizer = optimizer_of(model.parameters())

    def loss(i: int) -> Tensor:
        optimizer.param_groups[0]["armed"] = i == ARMED_AT
        out = model(torch.randn(3, 4))
        return out.square().mean() if loss_of is None else loss_of(out)

    return train(model, loss, optimizer)


class Own(torch.optim.Optimizer):
    """What a user's own optimizer looks like; the update is given."""

    def __init__(self, params: Any, update: Callable[[Tensor, Tensor], None]) -> None:
        super().__init__(params, {"armed": False})
        self.update = update

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and group["armed"]:
                    self.update(p, p.grad)


@optimizer_fault("div")
def division_by_a_zero_norm() -> Training:
    def update(p: Tensor, gradient: Tensor) -> None:
        scale = (gradient - gradient).norm()
        p.sub_(gradient / scale)  # FAULT

    return training(lambda params: Own(params, update))


@optimizer_fault("sqrt")
def root_of_a_negative_moment() -> Training:
    def update(p: Tensor, gradient: Tensor) -> None:
        moment = gradient.square() - 1
        p.addcdiv_(gradient, moment.sqrt())  # FAULT

    return training(lambda params: Own(params, update))


@optimizer_fault("exp")
def exponentiated_gradient() -> Training:
    def update(p: Tensor, gradient: Tensor) -> None:
        p.mul_(((gradient.sign() + 2) * 100).exp())  # FAULT

    return training(lambda params: Own(params, update))


@optimizer_fault("_foreach_addcdiv|_foreach_div|addcdiv", step=0, code="optimizer.step()")
def adam_without_eps() -> Training:
    return training(lambda params: torch.optim.Adam(params, lr=0.1, eps=0.0), lambda out: out.square().mean() * 0)


@optimizer_fault("_foreach_add|add", step=0, code="optimizer.step()")
def infinite_learning_rate() -> Training:
    return training(lambda params: torch.optim.SGD(params, lr=float("inf")))


@optimizer_fault("_foreach_addcdiv|addcdiv", step=0, code="optimizer.step()")
def rmsprop_without_eps() -> Training:
    return training(lambda params: torch.optim.RMSprop(params, lr=0.1, eps=0.0), lambda out: out.square().mean() * 0)


@optimizer_fault("_foreach_add|add", step=ARMED_AT, code="optimizer.step()")
def learning_rate_becomes_infinite() -> Training:
    model = Host(torch.tanh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 1.0 if i < ARMED_AT else float("inf"))

    def step(i: int) -> None:
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        schedule.step()

    return Training(model, step)
