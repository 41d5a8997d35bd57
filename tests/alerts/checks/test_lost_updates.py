"""Updates below half an ulp of low-precision weights: lost where elements stay for good, and not where they move in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, prune
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, OneCycleLR, SequentialLR

import numscope
from numscope.alerts.checks import checker, lost_updates
from numscope.alerts.checks.check import FIRST
from numscope.records.alert import Alert

BF16 = torch.bfloat16
EVERY = 20  # steps from look to look: in earnest they are a hundred
LONG = 46  # steps
After = Callable[[int], object]


@pytest.fixture(autouse=True)
def looks_come_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "EVERY", EVERY)
    monkeypatch.setattr(lost_updates, "SPAN", EVERY - FIRST)


def network(dtype: torch.dtype = BF16) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 8)).to(dtype)


def lost(model: nn.Module, optimizer: Optimizer, steps: int, after: After = lambda step: None, target: float | None = None) -> list[Alert]:
    """What is said of lost updates in a training; ``after`` each of its steps something may be done."""
    dtype = next(model.parameters()).dtype
    with numscope.watch(model) as scope:
        for i in range(steps):
            x = torch.randn(16, 16, generator=torch.Generator().manual_seed(i)).to(dtype)
            optimizer.zero_grad()
            y = x[:, :8].flip(1) if target is None else target
            (model(x) - y).square().mean().backward()
            optimizer.step()
            after(i)
    assert not scope.fault
    return [alert for alert in scope.alerts if alert.rule == "updates lost"]


@pytest.mark.parametrize(
    ("kind", "dtype"), [(AdamW, torch.bfloat16), (Adam, torch.float16), (SGD, torch.bfloat16), (SGD, torch.float16)], ids=str
)
def test_updates_that_round_away(dtype: torch.dtype, kind: Any) -> None:
    """torchao #1124, ml-by-hand #85: an update below half an ulp leaves a bfloat16 weight as it was."""
    more = {"eps": 1e-4} if kind is not SGD else {}
    for steps, seen in ((6, 5), (LONG, EVERY)):
        model = network(dtype)
        (alert,) = lost(model, kind(model.parameters(), lr=1e-6, **more), steps)
        assert alert.step == seen and not alert.asks, "at a later look, or as the run ends"
        assert (alert.layer, alert.tensor) in (("", ""), ("0", "weight"), ("2", "weight"), ("0", "bias"))
        assert alert.value is not None and alert.value > 0.85
        assert f"of the {str(dtype).removeprefix('torch.')} elements with a gradient have kept their bits since step 0" in alert.text
        assert f", {alert.evidence['parameters'][0]} the most." in alert.text or alert.evidence["num_parameters"] == 1
        assert "float32 master weights" in alert.advice
    model = network(dtype)
    assert lost(model, kind(model.parameters(), lr=1e-2 if kind is not SGD else 1.0, **more), 30) == []
    model = network(torch.float32)
    assert lost(model, kind(model.parameters(), lr=1e-6, **more), 6) == []


def test_a_hundred_steps_pass_before_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    model = network()
    (alert,) = lost(model, AdamW(model.parameters(), lr=1e-6), 110)
    assert alert.step == 100


def test_three_steps_show_nothing_yet() -> None:
    model = network()
    assert lost(model, AdamW(model.parameters(), lr=1e-6), 3) == []


# ---- learning rates: what a schedule begins and ends with is not lost, a peak that is too low is

Schedule = Callable[[Optimizer], Any]


def held(optimizer: Optimizer) -> Any:
    return LambdaLR(optimizer, lambda step: 1.0)


def cosine_to_zero(optimizer: Optimizer) -> Any:
    return CosineAnnealingLR(optimizer, LONG)


def linear_to_zero(optimizer: Optimizer) -> Any:
    return LambdaLR(optimizer, lambda step: max(0.0, 1 - step / LONG))


def early_to_zero(optimizer: Optimizer) -> Any:
    return LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 18))


def warm_up(optimizer: Optimizer) -> Any:
    return SequentialLR(optimizer, [LinearLR(optimizer, 1e-5, total_iters=10), CosineAnnealingLR(optimizer, LONG)], [10])


def warm_up_by_epochs(optimizer: Optimizer) -> Any:
    return LambdaLR(optimizer, lambda step: 1e-4 if step < 4 else 1.0)


def one_cycle(optimizer: Optimizer) -> Any:
    return OneCycleLR(optimizer, optimizer.param_groups[0]["lr"], total_steps=LONG + 1, div_factor=1e4)


def never(optimizer: Optimizer) -> Any:
    return LambdaLR(optimizer, lambda step: 0.0)


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        *((held, steps) for steps in (8, 24)),
        *((cosine_to_zero, steps) for steps in (24, LONG)),
        *((linear_to_zero, steps) for steps in (8, LONG)),
        *((early_to_zero, steps) for steps in (24, LONG)),
        *((warm_up, steps) for steps in (8, 24)),
        *((warm_up_by_epochs, steps) for steps in (8, 24)),
        *((one_cycle, steps) for steps in (24, LONG)),
        *((never, steps) for steps in (8, 24)),
    ],
)
def test_learning_rates_that_begin_and_end_low_lose_nothing(make: Schedule, steps: int) -> None:
    model = network()
    optimizer = AdamW(model.parameters(), lr=3e-3)
    scheduler = make(optimizer)
    assert lost(model, optimizer, steps, lambda step: scheduler.step()) == []


@pytest.mark.parametrize("make", [cosine_to_zero, linear_to_zero, warm_up_by_epochs])
def test_learning_rates_whose_peak_is_too_low_lose_updates(make: Schedule) -> None:
    model = network()
    optimizer = AdamW(model.parameters(), lr=1e-6)
    scheduler = make(optimizer)
    assert len(lost(model, optimizer, LONG + 60, lambda step: scheduler.step())) == 1


def test_learning_rates_that_the_script_warms_up_by_epochs_lose_nothing() -> None:
    model = network()
    optimizer = AdamW(model.parameters(), lr=1e-7)

    def rate(step: int) -> None:
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1.0, (step // 6) / 3 + 1e-5)

    assert lost(model, optimizer, LONG, rate) == []
    model = network()
    optimizer = AdamW(model.parameters(), lr=1e-7)
    assert lost(model, optimizer, 12, lambda step: rate(step) if step >= 5 else None) == []


def test_learning_rates_in_tensors_are_read_too() -> None:
    def rates(first: float, later: float) -> list[Alert]:
        model = network()
        rate = torch.tensor(first)
        optimizer = AdamW(model.parameters(), lr=rate)
        return lost(model, optimizer, 24, lambda step: rate.fill_(later) if step == 8 else None)

    assert rates(0.0, 0.0) == rates(1e-7, 3e-3) == rates(3e-3, 0.0) == []
    assert len(rates(1e-7, 1e-7)) == 1


def test_a_group_that_is_frozen_by_its_rate_is_not_the_other() -> None:
    for rate, names in ((3e-3, []), (1e-6, ["2.weight"])):
        model = network()
        optimizer = AdamW([{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters(), "lr": rate}])
        found = lost(model, optimizer, 24)
        assert [name for alert in found for name in alert.evidence["parameters"] if "weight" in name] == names


# ---- optimizers that move elements in time


class Every(Optimizer):
    """Adds gradients up, and updates at each of several calls."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, every: int = 8) -> None:
        super().__init__(parameters, {"lr": lr})
        self.every, self.calls = every, 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.calls += 1
        for group in self.param_groups:
            for p in group["params"]:
                total = self.state[p].setdefault("total", torch.zeros_like(p))
                total += p.grad
                if self.calls % self.every == 0:
                    p.add_(total.sign(), alpha=-group["lr"])
                    total.zero_()


class Partly(Optimizer):
    """Updates a part of the elements in each step, drawn at random."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, share: float = 0.1) -> None:
        super().__init__(parameters, {"lr": lr})
        self.share, self.generator = share, torch.Generator().manual_seed(0)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * p.grad.sign() * (torch.rand(p.shape, generator=self.generator) < self.share))


class Dithered(Optimizer):
    """Rounds at random, and doesn't call it that."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                exact = p.float() - group["lr"] * p.grad.float().sign()
                noise = torch.randint(1 << 16, p.shape, dtype=torch.int32)
                p.copy_(((exact.view(torch.int32) + noise) & -(1 << 16)).view(torch.float32))


class WithRest(Optimizer):
    """Keeps what the weight could not take, in a state without a telling name."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                rest = self.state[p].setdefault("c", torch.zeros(p.shape))
                exact = p.float() + rest - group["lr"] * p.grad.float().sign()
                p.copy_(exact)
                rest.copy_(exact - p.float())


class AdamWithMasterWeights(AdamW):
    """Its state says that it keeps what the weight can't hold."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                master = self.state[p].setdefault("master_param", p.detach().float().clone())
                master -= group["lr"] * p.grad.float().sign()
                p.copy_(master)


@pytest.mark.parametrize(
    ("kind", "rate"), [(Every, 1e-2), (Partly, 1e-2), (Dithered, 3e-4), (WithRest, 3e-4), (AdamWithMasterWeights, 1e-7)], ids=str
)
def test_optimizers_that_move_elements_in_time_lose_nothing(kind: Any, rate: float) -> None:
    model = network()
    assert lost(model, kind(model.parameters(), lr=rate), 44) == []


@pytest.mark.parametrize(("kind", "rate"), [(Every, 1e-6), (Partly, 1e-6)], ids=str)
def test_the_same_optimizers_at_too_low_a_rate_lose_updates(kind: Any, rate: float) -> None:
    model = network()
    assert len(lost(model, kind(model.parameters(), lr=rate), 44)) == 1


# ---- weights that stay on purpose


def test_rows_of_an_embedding_that_no_token_used_are_no_lost_updates() -> None:
    for rate, count in ((0.01, 0), (1e-6, 1)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(512, 16), nn.Linear(16, 1)).to(BF16)
        optimizer = AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        with numscope.watch(model) as scope:
            for i in range(22):
                optimizer.zero_grad()
                (model(torch.arange(16) + i % 3) - 1).square().mean().backward()
                optimizer.step()
        assert sum(alert.rule == "updates lost" for alert in scope.alerts) == count


def test_sparse_gradients_are_left_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(512, 16, sparse=True), nn.Linear(16, 1)).to(BF16)
    optimizer = SGD(model.parameters(), lr=0.01)
    with numscope.watch(model) as scope:
        for i in range(22):
            optimizer.zero_grad()
            model(torch.arange(8) + i % 50).square().mean().backward()
            optimizer.step()
    assert not scope.fault and "updates lost" not in {alert.rule for alert in scope.alerts}


def masks(model: nn.Sequential, share: float = 0.6) -> dict[Tensor, Tensor]:
    return {layer.weight: (torch.rand(layer.weight.shape) > share).to(BF16) for layer in (model[0], model[2])}  # type: ignore[dict-item]


@torch.no_grad()
def pruned(of: dict[Tensor, Tensor]) -> None:
    for weight, mask in of.items():
        weight.mul_(mask)


@pytest.mark.parametrize("how", ["after the step", "within the step", "by a parametrization", "by gradients"])
def test_weights_that_are_pruned_lose_nothing(how: str) -> None:
    for rate, count in ((3e-3, 0), (1e-6, 1)):
        model = network()
        of = masks(model)
        pruned(of)
        if how == "by a parametrization":
            for layer in (model[0], model[2]):
                prune.random_unstructured(layer, "weight", 0.6)  # type: ignore[no-untyped-call]
        optimizer = AdamW(model.parameters(), lr=rate)
        if how == "within the step":
            optimizer.register_step_post_hook(lambda *_, of=of: pruned(of))
        if how == "by gradients":
            for weight, mask in of.items():
                weight.register_hook(lambda gradient, mask=mask: gradient * mask)
        after = (lambda step, of=of: pruned(of)) if how == "after the step" else lambda step: None
        assert len(lost(model, optimizer, 24, after)) == count


def test_weights_that_are_clamped_after_the_step_lose_nothing() -> None:
    """As a Wasserstein critic's: most lie at the bound, and are put back there."""
    model = network()

    @torch.no_grad()
    def clamp(step: int) -> None:
        for p in model.parameters():
            p.clamp_(-0.01, 0.01)

    assert lost(model, SGD(model.parameters(), lr=1.0), 44, clamp, target=4.0) == []


def test_a_model_that_has_converged_loses_nothing() -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.Linear(64, 8)).to(BF16)

    def training(count: int) -> list[Alert]:
        optimizer = SGD(model.parameters(), lr=0.1)
        x = torch.eye(16).to(BF16)
        y = torch.ones(16, 8).to(BF16)
        with numscope.watch(model) as scope:
            for i in range(count):
                optimizer.zero_grad()
                ((model(x) - y).square().mean() * (1.0 if i < 5 else 1e-6)).backward()
                optimizer.step()
        return [alert for alert in scope.alerts if alert.rule == "updates lost"]

    assert training(84) == []


def test_gains_at_one_are_asked_about() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 128), nn.LayerNorm(128), nn.Linear(128, 8)).to(BF16)
    for p in (*model[0].parameters(), *model[2].parameters()):
        p.requires_grad_(False)
    optimizer = AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    (alert,) = lost(model, optimizer, 40)
    assert alert.asks and alert.evidence["parameters"] == ["1.weight"]


def test_clipping_that_leaves_nothing_loses_updates() -> None:
    for most, count in ((1.0, 0), (1e-7, 1)):
        model = network()
        optimizer = SGD(model.parameters(), lr=1.0)
        optimizer.register_step_pre_hook(lambda *_, model=model, most=most: (clip_grad_norm_(model.parameters(), most), None)[1])
        assert len(lost(model, optimizer, 24)) == count


def test_watched_or_not_the_weights_are_the_same() -> None:
    found = []
    for watched in (True, False):
        model = network()
        optimizer = AdamW(model.parameters(), lr=1e-6)
        if watched:
            lost(model, optimizer, 8)
        else:
            for i in range(8):
                x = torch.randn(16, 16, generator=torch.Generator().manual_seed(i)).to(BF16)
                optimizer.zero_grad()
                (model(x) - x[:, :8].flip(1)).square().mean().backward()
                optimizer.step()
        found.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
