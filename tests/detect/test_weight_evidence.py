"""What the weights' rows add to a finding: sudden growth with the learning rate, and weights that nobody ever wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.records.finding import Finding, Reason
from tests.faults.planting import Training, found, quiet, train

SCRIPT_WRITES = (
    "Look for what writes it, before the call or within it: an initialization from data, a clamp, an average, a loaded checkpoint."
)
NEVER_WRITTEN = (
    "It was so when it was first seen: check the checkpoint that was loaded, and whether it was ever initialized "
    "(to_empty() and torch.empty leave memory uninitialized)."
)


def deep() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))


def diverging(
    optimizer_of: Callable[[Any], torch.optim.Optimizer], rate: float, head: Callable[[Tensor], Tensor] = torch.square
) -> Finding:
    """A training whose learning rate jumps before its second step."""

    def plant() -> Training:
        model = deep()
        optimizer = optimizer_of(model.parameters())

        def loss_of(i: int) -> Tensor:
            optimizer.param_groups[0]["lr"] = rate if i == 1 else 1e-3
            return head(model(torch.randn(8, 4)) - 1).mean()

        return train(model, loss_of, optimizer)

    return found(plant)


@pytest.mark.parametrize("rate", [1e18, 1e25])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_huge_learning_rate_is_named_though_a_schedule_has_lowered_it_since(optimizer: Any, rate: float) -> None:
    finding = diverging(lambda params: optimizer(params, lr=1e-3), rate)
    culprit = finding.culprit
    assert culprit is not None and finding.step == 2 and culprit.reason == Reason.OVERFLOW
    assert finding.note.startswith("the last update made the largest magnitude of ")
    assert finding.note.endswith(f"; is the learning rate ({rate:g}) too high?")
    assert culprit.advice.startswith(f"Lower the learning rate ({rate:g}) or clip gradients: the last update made ")


def test_growth_before_an_exponential() -> None:
    finding = diverging(lambda params: torch.optim.SGD(params, lr=1e-3), 1e7, lambda y: y.abs().exp())
    assert finding.culprit is not None and finding.culprit.reason == Reason.EXP_OVERFLOW
    assert finding.culprit.advice.startswith("Lower the learning rate (1e+07)")


def test_script_that_updates_weights_itself_is_not_told_of_a_bad_parameter() -> None:
    model = deep()
    with quiet(), numscope.watch(model, on_nonfinite="warn") as scope:
        for _ in range(3):
            model.zero_grad()
            (model(torch.randn(8, 4)) - 1).square().mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 1e20 * p.grad
    finding = scope.findings[0]  # told as the next forward begins; the call was done again before the weights were written
    assert finding.step == 1 and finding.site.module == "2" and finding.culprit is not None
    assert finding.culprit.reason == Reason.OVERFLOW and finding.replay == "reproduced"
    assert all(o.numbers is not None and not o.numbers.num_nonfinite for o in finding.culprit.inputs[:3])
    assert finding.note == ""  # growth is an optimizer's


def test_numbers_are_those_before_and_after_the_last_update() -> None:
    def plant() -> Training:
        model = nn.Linear(1, 1, bias=False)
        nn.init.ones_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

        def loss_of(i: int) -> Tensor:
            return (model(torch.ones(1, 1)) * (-1.0, -1e10, 1e35)[i]).sum()

        return train(model, loss_of, optimizer)

    finding = found(plant)
    assert finding.step == 2
    assert finding.note == "the last update made the largest magnitude of weight grow from 2 to 1e+10; is the learning rate (1) too high?"


@pytest.mark.parametrize("fault", ["large data", "a weight that was large already", "a bias that starts near zero"])
def test_overflow_for_another_reason_blames_no_learning_rate(fault: str) -> None:
    def plant() -> Training:
        model = nn.Linear(4, 4)
        with torch.no_grad():
            if fault == "a weight that was large already":
                model.weight.fill_(1e5)
            model.bias.fill_(1e-9)

        def loss_of(i: int) -> Tensor:
            x = torch.ones(3, 4) * (3e38 if i == 2 else 1e-6)
            return (model(x) * 1e-3).square().mean()

        return train(model, loss_of, torch.optim.Adam(model.parameters(), lr=0.1))

    finding = found(plant)
    assert finding.step == 2 and finding.culprit is not None
    assert finding.note == "" and "learning rate (" not in finding.culprit.advice


# ---- bad before the first step


@pytest.mark.parametrize("how", ["to_empty", "torch.empty", "checkpoint"])
def test_weight_bad_from_the_start_is_said_to_be_perhaps_never_initialized(how: str) -> None:
    def plant() -> Training:
        model = deep()
        if how == "to_empty":
            with torch.device("meta"):
                model = deep()
            model.to_empty(device="cpu")
            for p in model.parameters():
                nn.init.normal_(p, 0, 0.1)
        with torch.no_grad():
            bad = model.get_parameter("2.weight")
            if how == "checkpoint":
                model.load_state_dict({**model.state_dict(), "2.weight": torch.full_like(bad, float("nan"))})
            else:
                bad.fill_(float("nan"))  # as uninitialized memory may hold
        return train(model, lambda i: model(torch.randn(8, 4)).square().mean())

    finding = found(plant)
    culprit = finding.culprit
    assert culprit is not None and finding.step == 0
    assert (culprit.reason, culprit.detail) == (Reason.BAD_PARAMETER, "2.weight held 256 nan of 256 elements before this step.")
    assert culprit.advice == NEVER_WRITTEN


@pytest.mark.parametrize("step", [0, 2])
def test_weight_that_the_script_made_bad_since_is_not_said_to_be_uninitialized(step: int) -> None:
    def plant() -> Training:
        model = deep()

        def loss_of(i: int) -> Tensor:
            if i == step:
                with torch.no_grad():
                    model.get_parameter("0.bias")[1] = float("inf")
            return model(torch.randn(8, 4)).square().mean()

        return train(model, loss_of)

    culprit = found(plant).culprit
    assert culprit is not None and culprit.detail == "0.bias holds 1 inf of 16 elements, which no update has written."
    assert culprit.advice == SCRIPT_WRITES


@pytest.mark.tried
def test_weight_that_its_own_call_writes_is_not_said_to_have_been_so_before() -> None:
    """An initialization from data, which a flag guards: the call that is done again does not do it, so no remedy can be tried on it."""

    class FromData(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.is_done = nn.Parameter(torch.ones(4)), False

        def forward(self, x: Tensor) -> Tensor:
            if not self.is_done:
                self.is_done = True
                with torch.no_grad():
                    self.scale.copy_(1 / x.std(0))
            return x * self.scale

    def plant() -> Training:
        model, x = nn.Sequential(FromData(), nn.Linear(4, 1)), torch.randn(8, 4)
        x[:, 1] = 0.5
        return train(model, lambda i: model(x).square().mean())

    culprit = found(plant).culprit
    assert culprit is not None and culprit.detail == "0.scale holds 1 inf of 4 elements, which no update has written."
    assert (culprit.advice, culprit.tried) == (SCRIPT_WRITES, ())


def test_buffer_whose_name_begins_like_an_input_is_not_the_batch_s_fault() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.batch_norm, self.inputs = nn.Linear(4, 4), nn.Linear(4, 4)
            self.batch_norm.register_buffer("scale", torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.inputs(self.batch_norm(x) * self.batch_norm.scale)
            return y

    def plant() -> Training:
        model = Model()

        def loss_of(i: int) -> Tensor:
            model.batch_norm.scale[0] = float("nan") if i == 1 else 1.0  # type: ignore[index]
            return model(torch.randn(3, 4)).square().mean()

        return train(model, loss_of)

    culprit = found(plant).culprit
    assert culprit is not None and culprit.reason == Reason.BAD_PARAMETER
    assert culprit.detail == "batch_norm.scale held 1 nan of 4 elements before this step."
