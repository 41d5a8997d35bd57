"""Faults that the forward does not show: its numbers are finite, its gradient's are not."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from numscope.records.finding import Reason
from numscope.records.site import Phase
from tests.faults.planting import Fault, hosted

CATALOG: list[Fault] = []
HALF = torch.float16


def backward_fault(op: str, reason: Reason, **more: Any) -> Any:
    return hosted(CATALOG, op, reason, phase=Phase.BACKWARD, **more)


@backward_fault("div|mul", Reason.GRADIENT_AT_ZERO)
def root_at_zero(x: Tensor) -> Tensor:
    y = x * (x > 0)
    return x + y.sqrt()  # FAULT


@backward_fault("div|mul", Reason.GRADIENT_AT_ZERO)
def distance_of_a_point_to_itself(x: Tensor) -> Tensor:
    squares = (x[:, None] - x[None]).square().sum(-1)
    return x + squares.sqrt().sum()  # FAULT


@backward_fault("mul|div|pow", Reason.GRADIENT_AT_ZERO)
def power_below_one_at_zero(x: Tensor) -> Tensor:
    y = x * (x > 0)
    return x + y**0.5  # FAULT


@backward_fault("div|mul", Reason.DIVISION_BY_ZERO)
def where_hides_a_division(x: Tensor) -> Tensor:
    y = F.relu(x)
    return x + torch.where(y > 0, x / y, 0.0)  # FAULT


@backward_fault("div|mul", Reason.DOMAIN)
def where_hides_a_log(x: Tensor) -> Tensor:
    y = x * (x > 0)
    return x + torch.where(y > 0, y.log(), 0.0)  # FAULT


@backward_fault("mul", Reason.ZERO_TIMES_INF)
def where_hides_an_exp(x: Tensor) -> Tensor:
    big = x.sign() * 200
    y = big + x
    return x + torch.where(y < 0, y.exp(), y)  # FAULT


@backward_fault("rsqrt", Reason.DOMAIN)
def angle_at_one(x: Tensor) -> Tensor:
    y = x.clamp(1, 1) + x * 0
    return x + y.acos()  # FAULT


@backward_fault("reciprocal", Reason.DIVISION_BY_ZERO)
def custom_function_divides_in_backward(x: Tensor) -> Tensor:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(F.relu(x))
            return F.relu(x)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            return gradient * y.reciprocal()  # FAULT

    z: Tensor = Bad.apply(x)
    return z


@backward_fault("full_like", Reason.UNKNOWN)
def custom_function_returns_nan_in_backward(x: Tensor) -> Tensor:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return torch.full_like(gradient, float("nan"))  # FAULT

    z: Tensor = Bad.apply(x)
    return z


@backward_fault("mul", Reason.OVERFLOW, dtype=HALF)
def fp16_gradient(x: Tensor) -> Tensor:
    y = x * 0
    y = y * 60000  # FAULT
    return x + y * 60000


@backward_fault("div", Reason.DIVISION_BY_ZERO)
def hook_on_a_gradient(x: Tensor) -> Tensor:
    y = x * 1

    def scale(gradient: Tensor) -> Tensor:
        return gradient / (gradient * 0).sum()  # FAULT

    y.register_hook(scale)
    return y


@backward_fault("div", Reason.GRADIENT_AT_ZERO)
def gradient_of_a_slice_written_in_place(x: Tensor) -> Tensor:
    y = x * (x > 0)
    y[:, :4].sqrt_()  # FAULT
    return y
