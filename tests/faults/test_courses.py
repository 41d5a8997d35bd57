"""Courses of training out of the ordinary: losses on hidden states, several backwards, gradients of gradients, half precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import numscope
from numscope.records.finding import Finding, Reason
from numscope.records.site import Phase
from tests.faults.planting import Training, found, quiet, train, watched
from tests.tape import line_of


def expect(finding: Finding, marker: str, reason: Reason, phase: Phase, module: str) -> None:
    culprit = finding.culprit
    assert culprit is not None, finding.headline()
    assert (culprit.file, culprit.line) == (__file__, line_of(marker, __file__)), finding.headline()
    assert (culprit.reason, culprit.phase, culprit.module) == (reason, phase, module), finding.headline()


class Layered(nn.Module):
    """Returns what each layer made; the second one has a root whose gradient at zero is infinite, when it is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.armed = False

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        a = self.first(x)
        b = self.second(a)
        if self.armed:
            b = b + (b * 0).sqrt()  # hidden root
        return {"logits": self.third(b), "first": a, "second": b}


@pytest.mark.parametrize("used", ["logits", "hidden", "both"])
def test_loss_on_hidden_states_keeps_the_model_s_fault_with_the_model(used: str) -> None:
    def plant() -> Training:
        model = Layered()

        def loss_of(i: int) -> Tensor:
            model.armed = i == 1
            out = model(torch.randn(3, 4))
            hidden = out["first"].square().mean() + out["second"].square().mean()
            return {"logits": out["logits"].square().mean(), "hidden": hidden}.get(used, hidden + out["logits"].square().mean())

        return train(model, loss_of)

    expect(found(plant), "hidden root", Reason.GRADIENT_AT_ZERO, Phase.BACKWARD, "")


def test_fault_of_a_loss_on_a_hidden_state_is_the_loss_s() -> None:
    def plant() -> Training:
        model = Layered()

        def loss_of(i: int) -> Tensor:
            out = model(torch.randn(3, 4))
            penalty = (out["first"] * 0).sum(-1).sqrt().mean()  # penalty
            return out["logits"].square().mean() + penalty * float(i == 1)

        return train(model, loss_of)

    finding = found(plant)  # 0 * inf is a nan at once: step 0
    assert finding.step == 0
    expect(finding, "penalty", Reason.GRADIENT_AT_ZERO, Phase.BACKWARD, "")


def test_two_backwards_through_one_graph() -> None:
    def plant() -> Training:
        model = Layered()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(i: int) -> None:
            model.armed = i == 1
            optimizer.zero_grad()
            out = model(torch.randn(3, 4))
            out["first"].square().mean().backward(retain_graph=True)
            out["logits"].square().mean().backward()
            optimizer.step()

        return Training(model, step)

    expect(found(plant), "hidden root", Reason.GRADIENT_AT_ZERO, Phase.BACKWARD, "")


def test_gradient_penalty_divides_by_a_norm_of_zero() -> None:
    class Critic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 1)
            self.flat = False

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.body(x).tanh()
            return y * 0 if self.flat else y

    def plant() -> Training:
        critic = Critic()

        def loss_of(i: int) -> Tensor:
            critic.flat = i == 1
            x = torch.randn(3, 4, requires_grad=True)
            out = critic(x)
            (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            length = gradient.square().sum(-1).sqrt()  # penalty's root
            return out.mean() + (length - 1).square().mean()

        return train(critic, loss_of)

    finding = found(plant)
    assert finding.step == 1 and finding.culprit is not None
    assert (finding.culprit.file, finding.culprit.line) == (__file__, line_of("penalty's root", __file__)), finding.headline()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_around_model_and_loss(dtype: torch.dtype) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Linear(4, 4), nn.Linear(4, 4)
            self.gain = 1.0

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.head(self.stem(x) * self.gain)  # wide
            return y

    def plant() -> Training:
        model = Wide()

        def loss_of(i: int) -> Tensor:
            model.gain = (1e6 if dtype == torch.float16 else float(torch.finfo(torch.float32).max)) if i == 1 else 1.0
            with torch.autocast("cpu", dtype=dtype):
                return model(torch.ones(3, 4)).float().square().mean()

        return train(model, loss_of)

    finding = found(plant)
    assert finding.step == 1
    expect(finding, "wide", Reason.OVERFLOW, Phase.FORWARD, "")
    assert finding.culprit is not None and str(dtype).removeprefix("torch.") in finding.culprit.detail


def test_scaler_s_skips_are_no_finding_until_there_are_too_many() -> None:
    def plant() -> Training:
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, backoff_factor=0.99)

        def step(i: int) -> None:
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(3, 4)).square().mean() * (1e37 if i else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()

        return Training(model, step, steps=5)

    scope = watched(plant)
    assert scope.findings == [] and len(scope.events) == 4
    scope = watched(plant, alerts={"scale falls": {"finding": 3}})
    assert len(scope.findings) == 1


def test_checkpointed_block_with_a_fault_in_its_backward() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj, self.armed = nn.Linear(4, 4), False

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.proj(x)
            return y + (y * 0).sqrt() if self.armed else y  # block's root

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return x

    def plant() -> Training:
        model = Stack()

        def loss_of(i: int) -> Tensor:
            model.blocks[1].armed = i == 1
            return model(torch.randn(3, 4)).square().mean()

        return train(model, loss_of)

    expect(found(plant), "block's root", Reason.GRADIENT_AT_ZERO, Phase.BACKWARD, "blocks.1")


def test_recurrent_state_that_overflows_over_time() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(60):
                x = self.cell(x) * 10  # recurrence
            return x

    def plant() -> Training:
        model = Recurrent()
        return train(model, lambda i: model(torch.ones(1, 4)).mean())

    finding = found(plant)
    culprit = finding.culprit
    assert culprit is not None and culprit.reason == Reason.OVERFLOW and finding.step == 0
    assert (culprit.file, culprit.line) == (__file__, line_of("recurrence", __file__))


def test_dropout_s_random_choice_is_the_same_the_second_time() -> None:
    class Unlucky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.stem(x)
            kept = F.dropout(torch.ones(1), 0.5)
            return y / kept  # unlucky

    def plant() -> Training:
        model = Unlucky()
        training = train(model, lambda i: model(torch.randn(3, 4)).mean())
        training.steps = 20
        return training

    expect(found(plant), "unlucky", Reason.DIVISION_BY_ZERO, Phase.FORWARD, "")


def test_batch_norm_s_buffers_are_as_they_were_the_second_time() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.steps_left = nn.BatchNorm1d(4), 0
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += 1
            return self.norm(x) / (self.seen - 3)  # third

    def plant() -> Training:
        model = Normed()
        training = train(model, lambda i: model(torch.randn(8, 4)).square().mean())
        training.steps = 6
        return training

    finding = found(plant)
    assert finding.step == 2
    expect(finding, "third", Reason.DIVISION_BY_ZERO, Phase.FORWARD, "")


def test_argument_changed_in_place_after_the_call_is_said() -> None:
    def plant() -> Training:
        model = Layered()
        x = torch.empty(3, 4)

        def loss_of(i: int) -> Tensor:
            x.copy_(torch.full((3, 4), float("nan") if i == 1 else 1.0))
            loss = model(x)["logits"].square().mean()
            x.zero_()
            return loss

        def safe(i: int) -> Tensor:
            model.first.requires_grad_(False)  # else autograd itself refuses the change
            return loss_of(i)

        return train(model, safe)

    finding = found(plant)
    assert finding.culprit is None and "changed in place" in finding.replay
    assert finding.frames[-1].module == finding.site.module == "first"
    assert (finding.site.slot, finding.step) == ("input[0]", 1)


def test_no_step_at_all_is_judged_when_the_watch_is_closed() -> None:
    model = Layered()
    model.armed = True
    with quiet(), numscope.watch(model, on_nonfinite="warn") as scope:
        model(torch.randn(3, 4))["logits"].mean().backward()
    (finding,) = scope.findings
    expect(finding, "hidden root", Reason.GRADIENT_AT_ZERO, Phase.BACKWARD, "")


def test_training_without_a_torch_optimizer_says_its_steps() -> None:
    model: Any = Layered()
    with quiet(), numscope.watch(model, on_nonfinite="warn") as scope:
        for i in range(4):
            model.armed = i == 2
            model.zero_grad()
            model(torch.randn(3, 4))["logits"].mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * torch.nan_to_num(p.grad)
            scope.step()
    (finding,) = scope.findings
    assert finding.step == 2
    expect(finding, "hidden root", Reason.GRADIENT_AT_ZERO, Phase.BACKWARD, "")
