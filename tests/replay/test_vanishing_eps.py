"""A small number that is added to avoid a division by zero, and that is zero itself in float16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from numscope.records.finding import Culprit, Reason
from tests.faults.planting import Training, found, train, watched

HALF = torch.float16
VANISHED = "that should prevent this rounds to 0 in float16, whose smallest positive number is 5.96e-08."
IN_FLOAT32 = "Keep the weights and the optimizer's state in float32 (torch.autocast instead of a model in half precision)"


class Words(nn.Module):
    """Half of the embedding's rows are never used: their gradients are exactly zero."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 8), nn.Linear(32, 4)

    def forward(self, words: Tensor) -> Tensor:
        y: Tensor = self.head(self.embed(words).flatten(1))
        return y


def words(optimizer_of: Callable[..., torch.optim.Optimizer], dtype: torch.dtype = HALF, **options: Any) -> Callable[[], Training]:
    def plant() -> Training:
        model = Words().to(dtype)
        return train(model, lambda i: model(torch.randint(0, 8, (4, 4))).square().mean(), optimizer_of(model.parameters(), **options))

    return plant


def culprit_of(plant: Callable[[], Training]) -> Culprit:
    finding = found(plant)
    assert finding.culprit is not None, finding.headline()
    return finding.culprit


OPTIMIZERS = [
    (torch.optim.Adam, "1e-08"), (torch.optim.AdamW, "1e-08"), (torch.optim.NAdam, "1e-08"), (torch.optim.Adamax, "1e-08"),
    (torch.optim.RMSprop, "1e-08"), (torch.optim.Adagrad, "1e-10"),
]  # fmt: skip


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("optimizer, eps", OPTIMIZERS)
def test_default_eps_of_an_optimizer_is_zero_in_float16(optimizer: Any, eps: str, foreach: bool) -> None:
    culprit = culprit_of(words(optimizer, foreach=foreach))
    assert culprit.reason == Reason.OPTIMIZER_UPDATE and culprit.code == "optimizer.step()"
    assert culprit.detail.startswith("division by zero: ") and culprit.detail.endswith(
        f" of 128 divisors are 0 (0/0 is nan). The {eps} {VANISHED}"
    )
    assert culprit.advice == f"{IN_FLOAT32}, or give the optimizer an eps of at least 1e-4."


@pytest.mark.parametrize(
    "optimizer, options, eps",
    [
        (torch.optim.Adagrad, {"fused": True}, "1e-10"),
        (torch.optim.RAdam, {"foreach": True}, "1e-08"),
        (torch.optim.Adadelta, {"eps": 1e-9}, "1e-09"),
    ],
)
def test_eps_within_other_formulas(optimizer: Any, options: dict[str, Any], eps: str) -> None:
    culprit = culprit_of(words(optimizer, **options))
    assert culprit.reason == Reason.OPTIMIZER_UPDATE and f"The {eps} {VANISHED}" in culprit.detail
    assert culprit.advice.startswith(IN_FLOAT32)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad])
def test_advised_eps_trains_in_float16(optimizer: Any) -> None:
    assert watched(words(optimizer, eps=1e-4)).findings == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, HALF])
def test_eps_of_zero_is_not_said_to_vanish(dtype: torch.dtype) -> None:
    culprit = culprit_of(words(torch.optim.Adam, dtype, eps=0.0))
    eps = "1e-4" if dtype is HALF else "1e-8"
    assert culprit.advice == f"Give the optimizer a positive eps, added behind the root to what it divides by: eps={eps}."
    assert watched(words(torch.optim.Adam, dtype, eps=float(eps))).findings == []


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.RMSprop])
def test_bfloat16_holds_the_default_eps(optimizer: Any) -> None:
    assert watched(words(optimizer, torch.bfloat16)).findings == []


def in_the_model(fn: Callable[[Tensor], Tensor], dtype: torch.dtype = HALF) -> Callable[[], Training]:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(4, 4, bias=False, dtype=dtype)

        def forward(self, x: Tensor) -> Tensor:
            return fn(self.stem(x))

    def plant() -> Training:
        model = Model()
        return train(model, lambda i: model(torch.zeros(3, 4, dtype=dtype)).float().mean())

    return plant


@pytest.mark.parametrize(
    "fn, reason",
    [
        (lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-8), Reason.DIVISION_BY_ZERO),
        (lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-12), Reason.DIVISION_BY_ZERO),
        (lambda x: (x.abs() + 1e-8).log(), Reason.DOMAIN),
        (lambda x: x.clamp_min(1e-8).log(), Reason.DOMAIN),
        (lambda x: (x.square() + 1e-8).sqrt(), Reason.GRADIENT_AT_ZERO),
    ],
)
def test_eps_of_the_models_own_code(fn: Callable[[Tensor], Tensor], reason: Reason) -> None:
    culprit = culprit_of(in_the_model(fn))
    small = "1e-12" if "1e-12" in culprit.code else "1e-08"
    assert culprit.reason == reason and VANISHED in culprit.detail
    assert culprit.advice == f"Use a larger number than {small}, such as 1e-4, or compute this in float32."


def test_mask_that_makes_the_zero_is_not_taken_for_a_vanished_eps() -> None:
    culprit = culprit_of(in_the_model(lambda x: 1 / ((x + 1e-8) * torch.zeros(4, dtype=HALF))))
    assert culprit.reason == Reason.DIVISION_BY_ZERO and "rounds to 0" not in culprit.detail
