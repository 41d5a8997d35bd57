"""Faults of the forward, in the middle of a model: one of every reason and more."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from numscope.records.finding import Reason
from tests.faults.planting import Fault, hosted

CATALOG: list[Fault] = []
HALF = torch.float16
INF = float("inf")


def forward_fault(op: str, reason: Reason, **more: Any) -> Any:
    return hosted(CATALOG, op, reason, **more)


# ---- overflow of the dtype


@forward_fault("mul", Reason.OVERFLOW, dtype=HALF)
def fp16_product(x: Tensor) -> Tensor:
    y = x.sign() * 300
    return y * 300  # FAULT


@forward_fault("_to_copy", Reason.OVERFLOW)
def cast_to_fp16(x: Tensor) -> Tensor:
    y = (x * 1e6).to(HALF)  # FAULT
    return y.to(x.dtype)


@forward_fault("_to_copy", Reason.OVERFLOW)
def cast_to_bf16(x: Tensor) -> Tensor:
    y = x.sign() * torch.finfo(x.dtype).max
    return y.bfloat16().float()  # FAULT


@forward_fault("cumsum", Reason.OVERFLOW, dtype=HALF)
def fp16_cumsum(x: Tensor) -> Tensor:
    y = torch.full_like(x, 2e4)
    return y.cumsum(-1)  # FAULT


@forward_fault("sum", Reason.OVERFLOW, dtype=HALF)
def fp16_mean_by_hand(x: Tensor) -> Tensor:
    y = x.new_full((2048,), 60.0)
    return x + y.sum() / 2048  # FAULT


@forward_fault("mm|addmm|bmm", Reason.OVERFLOW)
def fp16_product_under_autocast(x: Tensor) -> Tensor:
    y = x.sign() * 300
    with torch.autocast("cpu", dtype=HALF):
        return (y @ torch.full((8, 8), 300.0).tril()).float()  # FAULT


@forward_fault("bmm", Reason.OVERFLOW, dtype=HALF)
def fp16_einsum(x: Tensor) -> Tensor:
    q = x.sign() * 200
    scores = torch.einsum("id,jd->ij", q, q)  # FAULT
    return scores.softmax(-1) @ x


@forward_fault("pow", Reason.OVERFLOW)
def high_power(x: Tensor) -> Tensor:
    y = x.abs() + 10
    return y**40  # FAULT


# ---- division by zero


@forward_fault("div", Reason.DIVISION_BY_ZERO)
def layer_norm_by_hand_without_eps(x: Tensor) -> Tensor:
    flat = x * 0 + 2
    centered = flat - flat.mean(-1, keepdim=True)
    return centered / flat.var(-1, keepdim=True).sqrt()  # FAULT


@forward_fault("native_layer_norm", Reason.DIVISION_BY_ZERO)
def layer_norm_without_eps(x: Tensor) -> Tensor:
    return F.layer_norm(x * 0 + 2, (8,), eps=0.0)  # FAULT


@forward_fault("div", Reason.DIVISION_BY_ZERO)
def unit_vectors(x: Tensor) -> Tensor:
    y = F.relu(x - 10)
    return y / y.norm(dim=-1, keepdim=True)  # FAULT


@forward_fault("div", Reason.DIVISION_BY_ZERO)
def masked_mean_of_nothing(x: Tensor) -> Tensor:
    mask = x > 100
    return x + (x * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)  # FAULT


@forward_fault("rsqrt", Reason.DIVISION_BY_ZERO)
def rms_norm_by_hand_without_eps(x: Tensor) -> Tensor:
    y = F.relu(x - 10)
    return y * y.square().mean(-1, keepdim=True).rsqrt()  # FAULT


@forward_fault("div", Reason.DIVISION_BY_ZERO)
def write_into_a_view(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 2:4].div_(y[:, :2].relu() * 0)  # FAULT
    return y * 2


@forward_fault("std|var", Reason.DIVISION_BY_ZERO)
def spread_of_one_element(x: Tensor) -> Tensor:
    return x + x[:1, :1].std()  # FAULT


@forward_fault("reciprocal", Reason.DIVISION_BY_ZERO)
def temperature_zero(x: Tensor) -> Tensor:
    temperature = F.relu(x.mean() - 10)
    return (x * temperature.reciprocal()).tanh()  # FAULT


@forward_fault("mean", Reason.DIVISION_BY_ZERO)
def mean_of_no_element(x: Tensor) -> Tensor:
    chosen = x[x > 100]
    return x + chosen.mean()  # FAULT


# ---- outside the domain


@forward_fault("log", Reason.DOMAIN)
def log_of_relu(x: Tensor) -> Tensor:
    return torch.log(F.relu(x))  # FAULT


@forward_fault("sqrt", Reason.DOMAIN)
def root_of_a_negative_variance(x: Tensor) -> Tensor:
    variance = x.square().mean(-1) - x.mean(-1).square() - 10
    return x / variance.sqrt()[:, None]  # FAULT


@forward_fault("pow", Reason.DOMAIN)
def root_by_power(x: Tensor) -> Tensor:
    y = x - 10
    return y**0.5  # FAULT


@forward_fault("acos", Reason.DOMAIN)
def angle(x: Tensor) -> Tensor:
    y = x.sign() * 1.0001
    return y.acos()  # FAULT


@forward_fault("log1p", Reason.DOMAIN)
def log1p_below_minus_one(x: Tensor) -> Tensor:
    y = x - 3
    return torch.log1p(y)  # FAULT


# ---- exp, infinities


@forward_fault("exp", Reason.EXP_OVERFLOW)
def softmax_by_hand(x: Tensor) -> Tensor:
    scores = x.sign() * 100
    exps = scores.exp()  # FAULT
    return exps / exps.sum(-1, keepdim=True)


@forward_fault("exp", Reason.EXP_OVERFLOW, dtype=HALF)
def fp16_exp(x: Tensor) -> Tensor:
    y = x.sign() * 12
    return y.exp() * x  # FAULT


@forward_fault("_softmax|_safe_softmax", Reason.INF_MINUS_INF)
def row_masked_entirely(x: Tensor) -> Tensor:
    scores = x @ x.t()
    mask = torch.zeros_like(scores, dtype=torch.bool)
    mask[1] = True
    attention = scores.masked_fill(mask, -INF).softmax(-1)  # FAULT
    return attention @ x


@forward_fault("sub", Reason.INF_MINUS_INF)
def infinite_bounds(x: Tensor) -> Tensor:
    high = torch.full_like(x, INF)
    low = torch.full_like(x, INF)
    return x + (high - low)  # FAULT


@forward_fault("mul", Reason.ZERO_TIMES_INF)
def mask_by_multiplication(x: Tensor) -> Tensor:
    keep = (x > 0).float()
    bias = (1 - keep) * -INF  # FAULT
    return (x + bias).softmax(-1)


# ---- other ways to run an operation


@forward_fault("div", Reason.DIVISION_BY_ZERO)
def custom_function(x: Tensor) -> Tensor:
    class Normalize(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x / (x - x).sum()  # FAULT

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient

    y: Tensor = Normalize.apply(x)
    return y


@forward_fault("_foreach_div", Reason.DIVISION_BY_ZERO)
def foreach(x: Tensor) -> Tensor:
    parts = torch._foreach_div(list(x.unbind(0)), [1.0, 0.0, 1.0])  # FAULT
    return torch.stack(list(parts))


@forward_fault("div", Reason.DIVISION_BY_ZERO)
def statement_of_several_lines(x: Tensor) -> Tensor:
    y: Tensor = (
        x.tanh()
        .add(1)
        .div(  # FAULT
            torch.zeros(())
        )
        .abs()
    )
    return y


@forward_fault("div", Reason.DIVISION_BY_ZERO)
def within_vmap(x: Tensor) -> Tensor:
    def one(row: Tensor) -> Tensor:
        return row / (row.sum() * 0)  # FAULT

    y: Tensor = torch.vmap(one)(x)
    return y


@forward_fault("log", Reason.DOMAIN)
def in_a_comprehension(x: Tensor) -> Tensor:
    return torch.stack([(row * 0).log() + row for row in x])  # FAULT


@forward_fault("log", Reason.DOMAIN)
def written_out(x: Tensor) -> Tensor:
    out = torch.empty_like(x.detach())
    torch.log(x.detach() * 0, out=out)  # FAULT
    return x + out


@forward_fault("linalg_inv_ex", Reason.DIVISION_BY_ZERO)
def inverse_of_a_singular_matrix(x: Tensor) -> Tensor:
    gram = x.t() @ x * 0
    inverse, _ = torch.linalg.inv_ex(gram)  # FAULT
    return x @ inverse


@forward_fault("_ctc_loss", Reason.DOMAIN)
def target_longer_than_its_input(x: Tensor) -> Tensor:
    steps, classes = x.log_softmax(-1)[:, None], torch.tensor([[1, 2, 3, 3, 4]])
    return x + F.ctc_loss(steps, classes, torch.tensor([3]), torch.tensor([5]))  # FAULT


@forward_fault("mm", Reason.INF_MINUS_INF)
def product_of_masked_scores(x: Tensor) -> Tensor:
    hidden = torch.tensor([False, True, True])
    scores = (x @ x.t()).masked_fill(hidden, -INF)
    return scores @ x  # FAULT
