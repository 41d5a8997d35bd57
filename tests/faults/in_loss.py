"""Faults in what is computed between the model's return and ``backward``: in the loss, or in its gradient alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from numscope.records.finding import Reason
from numscope.records.site import Phase
from tests.faults.planting import ARMED_AT, Fault, Host, Training, marked_line, train

CATALOG: list[Fault] = []
INF = float("inf")
LossFunction = Callable[[Tensor, Tensor], Tensor]


def loss_fault(op: str, reason: Reason, phase: Phase = Phase.LOSS) -> Callable[[LossFunction], LossFunction]:
    """A loss of the model's output (3, 2) and classes (3), used at one step; mean square error at the others."""

    def register(fn: LossFunction) -> LossFunction:
        def plant() -> Training:
            model = Host(torch.tanh)

            def loss_of(i: int) -> Tensor:
                out = model(torch.randn(3, 4))
                return fn(out, torch.tensor([0, 1, 1])) if i == ARMED_AT else out.square().mean()

            return train(model, loss_of)

        file, line = marked_line(fn)
        CATALOG.append(Fault(fn.__name__, plant, op, reason, phase, "", ARMED_AT, file, line, in_model=False))
        return fn

    return register


@loss_fault("log", Reason.DOMAIN)
def log_of_softmax_by_hand(out: Tensor, target: Tensor) -> Tensor:
    p = (out * 1e6).softmax(-1)
    return -p.log().mean()  # FAULT


@loss_fault("log", Reason.DOMAIN)
def log_of_negative(out: Tensor, target: Tensor) -> Tensor:
    return (out - 100).log().mean()  # FAULT


@loss_fault("log", Reason.DOMAIN)
def entropy_with_a_zero(out: Tensor, target: Tensor) -> Tensor:
    p = F.one_hot(target, 2) + out * 0
    return -(p * p.log()).sum()  # FAULT


@loss_fault("log", Reason.DOMAIN)
def binary_cross_entropy_by_hand(out: Tensor, target: Tensor) -> Tensor:
    p = (out[:, 0] * 1e6).sigmoid()
    return -(target * p.log() + (1 - target) * (1 - p).log()).mean()  # FAULT


@loss_fault("log", Reason.DOMAIN)
def divergence_from_a_distribution_with_zeros(out: Tensor, target: Tensor) -> Tensor:
    p, q = out.softmax(-1), (out * 1e6).softmax(-1)
    return (p * (p.log() - q.log())).sum()  # FAULT


@loss_fault("exp", Reason.EXP_OVERFLOW)
def contrastive_by_hand(out: Tensor, target: Tensor) -> Tensor:
    z = F.normalize(out, dim=-1)
    sims = (z @ z.t() / 0.005).exp()  # FAULT
    return -(sims.diagonal() / sims.sum(-1)).log().mean()


@loss_fault("div", Reason.DIVISION_BY_ZERO)
def cosine_of_a_zero_vector_by_hand(out: Tensor, target: Tensor) -> Tensor:
    a, b = out, torch.zeros_like(out)
    return ((a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))).mean()  # FAULT


@loss_fault("div", Reason.DIVISION_BY_ZERO)
def mean_over_no_valid_position(out: Tensor, target: Tensor) -> Tensor:
    valid = target > 5
    losses = F.cross_entropy(out, target, reduction="none")
    return (losses * valid).sum() / valid.sum()  # FAULT


@loss_fault("nll_loss_forward", Reason.DIVISION_BY_ZERO)
def all_targets_ignored(out: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(out, torch.full_like(target, -100))  # FAULT


@loss_fault("masked_fill", Reason.UNKNOWN)
def target_points_at_a_masked_class(out: Tensor, target: Tensor) -> Tensor:
    masked = out.masked_fill(torch.tensor([False, True]), -INF)  # FAULT
    return F.cross_entropy(masked, target)


@loss_fault("_to_copy", Reason.OVERFLOW)
def loss_in_fp16(out: Tensor, target: Tensor) -> Tensor:
    scaled = (out.square().mean() + 1) * 1e6
    return scaled.half().float()  # FAULT


@loss_fault("mse_loss", Reason.OVERFLOW)
def huge_targets(out: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(out * 0, torch.full_like(out, 1e30))  # FAULT


@loss_fault("sqrt_backward", Reason.GRADIENT_AT_ZERO, Phase.BACKWARD)
def root_of_a_zero_error(out: Tensor, target: Tensor) -> Tensor:
    error = (out - out.detach()).square().mean()
    return error.sqrt()  # FAULT


@loss_fault("sqrt_backward", Reason.GRADIENT_AT_ZERO, Phase.BACKWARD)
def distances_with_the_diagonal(out: Tensor, target: Tensor) -> Tensor:
    squares = (out[:, None] - out[None]).square().sum(-1)
    return squares.sqrt().mean()  # FAULT


@loss_fault("log_backward", Reason.DOMAIN, Phase.BACKWARD)
def where_in_the_loss_hides_a_log(out: Tensor, target: Tensor) -> Tensor:
    y = out * (out > 0)
    return torch.where(y > 0, y.log(), 0.0).mean()  # FAULT


@loss_fault("reciprocal|div|mul", Reason.DIVISION_BY_ZERO, Phase.BACKWARD)
def custom_loss_divides_in_backward(out: Tensor, target: Tensor) -> Tensor:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient / (gradient - gradient)  # FAULT

    loss: Tensor = Bad.apply(out).mean()
    return loss
