"""The engine beside real models: its board holds what the tensors held, and rules speak of real runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.alerts.board import Board
from numscope.alerts.engine import Engine
from numscope.records.alert import Alert
from numscope.scope.scope import Scope


def board_of(scope: Scope) -> Board:
    engine = scope._watch._detection.judge.onlooker  # type: ignore[union-attr]
    assert isinstance(engine, Engine)
    return engine.board


def levels(scope: Scope) -> dict[str, float]:
    board = board_of(scope)
    return {f"{place.layer} {place.tensor}": float(level) for place, level in zip(board.places, board.level, strict=True)}


def log2_of(*tensors: Tensor | None) -> float:
    largest = max(float(t.detach().double().abs().max()) for t in tensors if t is not None)
    return math.log2(largest)


class Shared(nn.Module):
    """Calls one layer twice, and another one only now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.now_and_then = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.use = False

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(self.b(self.a(x)))
        return self.now_and_then(x) if self.use else x


def test_levels_are_those_of_the_tensors_however_steps_differ() -> None:
    torch.manual_seed(0)
    model = Shared()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model, alerts={"parameter without gradient": False}) as scope:
        for step in range(12):
            model.use = step % 3 == 2
            seen: dict[str, list[Tensor]] = {}
            hooks = [
                layer.register_forward_hook(lambda m, args, out, name=name, seen=seen: seen.setdefault(name, []).append(out))
                for name, layer in model.named_children()
            ]
            weights = {name: log2_of(p) for name, p in model.named_parameters()}
            optimizer.zero_grad()
            x = torch.randn(3, 4)
            loss = model(x).square().mean()
            loss.backward()
            gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
            optimizer.step()
            for hook in hooks:
                hook.remove()
            found = levels(scope)
            for name, outputs in seen.items():
                assert found[f"{name} output"] == pytest.approx(log2_of(*outputs))
                assert found[f"{name} weight"] == pytest.approx(weights[f"{name}.weight"])
                assert found[f"{name} wgrad[bias]"] == pytest.approx(log2_of(gradients[f"{name}.bias"]))
            assert found[" activation"] == pytest.approx(log2_of(x))
            assert board_of(scope).losses[-1] == pytest.approx(loss.item())
    assert scope.alerts == []


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, rate: Any = None, size: int = 64) -> Iterator[int]:
    """Regression of noise, with a rate for each step."""
    target = nn.Linear(16, 1)
    for step in range(steps):
        if rate is not None:
            optimizer.param_groups[0]["lr"] = rate(step)
        x = torch.randn(size, 16)
        with torch.no_grad():
            y = target(x)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        yield step


def mlp(depth: int, activation: type[nn.Module] = nn.ReLU, width: int = 16) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def rules(alerts: list[Alert]) -> list[str]:
    return [alert.rule for alert in alerts]


def test_rate_that_grows_and_grows_is_told_of_before_the_loss_is_gone() -> None:
    torch.manual_seed(0)
    model = mlp(14, nn.GELU)
    optimizer = torch.optim.AdamW(model.parameters())
    with numscope.watch(model, on_nonfinite="warn") as scope:
        for _ in trained(model, optimizer, 500, lambda step: 1e-4 * 10 ** (step / 120)):
            if "divergence ahead" in rules(scope.alerts):
                break
        alert = scope.alerts[rules(scope.alerts).index("divergence ahead")]
        assert board_of(scope).losses[-1] < 2
    assert 100 < alert.step < 500
    assert alert.layer in dict(model.named_modules())


def test_healthy_run_is_silent() -> None:
    torch.manual_seed(0)
    model = mlp(14, nn.GELU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with numscope.watch(model) as scope:
        for _ in trained(model, optimizer, 250):
            pass
    assert scope.alerts == []


def test_gradients_that_vanish_in_a_deep_sigmoid_network() -> None:
    torch.manual_seed(0)
    model = mlp(24, nn.Sigmoid)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        for _ in trained(model, optimizer, 60):
            pass
    vanish = [alert for alert in scope.alerts if alert.rule == "gradients vanish"]
    assert len(vanish) == 1
    assert vanish[0].layer == "0"
    assert vanish[0].tensor == "wgrad"


def test_scale_that_falls_and_falls() -> None:
    torch.manual_seed(0)
    model = mlp(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1000)
    with numscope.watch(model, on_nonfinite="warn") as scope:
        for step in range(30):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 16)).square().mean()
            factor = 1e38 if step % 3 == 0 and step else 1.0  # gradients that overflow with the scale
            scaler.scale(loss * factor).backward()
            scaler.step(optimizer)
            scaler.update()
    falls = [alert for alert in scope.alerts if alert.rule == "scale falls"]
    assert falls and falls[0].evidence["skipped"] >= 4


def test_operation_that_was_noted_is_what_the_scale_falls_for() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(16, 4)

        def forward(self, x: Tensor, divisor: float) -> Tensor:
            return self.linear(x) * 0 / torch.full((1,), divisor) + self.linear(x)

    model = Pooled()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1000)
    with numscope.watch(model, on_nonfinite="warn") as scope:
        for step in range(30):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 16), 0.0 if step % 3 == 0 and step else 1.0).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            with torch.no_grad():  # what an evaluation gives is another matter
                model(torch.full((1, 16), math.nan), 1.0)
    fall = next(alert for alert in scope.alerts if alert.rule == "scale falls")
    assert "what goes bad" not in fall.advice and fall.text.endswith("what goes bad though it falls.")
    assert fall.advice.startswith("It is aten.div, noted at step 3. ")


def test_a_rule_that_is_off_says_nothing() -> None:
    torch.manual_seed(0)
    model = mlp(24, nn.Sigmoid)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model, alerts={"gradients vanish": False}) as scope:
        for _ in trained(model, optimizer, 60):
            pass
    assert "gradients vanish" not in rules(scope.alerts)


def test_settings_move_a_limit() -> None:
    torch.manual_seed(0)
    model = mlp(10, nn.Sigmoid)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model, alerts={"gradients vanish": {"bits": 6.0}}) as scope:
        for _ in trained(model, optimizer, 60):
            pass
    assert "gradients vanish" in rules(scope.alerts)


def test_sentinel_has_alerts_of_what_it_sees() -> None:
    torch.manual_seed(0)
    model = mlp(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with numscope.watch(model, level="sentinel") as scope:
        for _ in trained(model, optimizer, 40):
            pass
        tensors = {place.tensor for place in board_of(scope).places}
    assert "wgrad" in tensors and "output" in tensors


def test_a_script_that_has_numpy_raise_is_no_fault_of_the_engine() -> None:
    torch.manual_seed(0)
    model = mlp(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with np.errstate(all="raise"), numscope.watch(model) as scope:
        for step in trained(model, optimizer, 80):
            if step == 20:
                with torch.no_grad():
                    model[0].weight.zero_()
        assert board_of(scope).num_steps == 80
    assert not scope.fault


@pytest.mark.parametrize("new", [True, False])
def test_a_loss_that_another_optimizer_trains_is_another_loss(new: bool) -> None:
    """A second stage begins at a loss of its own."""
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    with numscope.watch(model, on_nonfinite="warn") as scope:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for step in range(140):
            if step == 100 and new:
                optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            optimizer.zero_grad()
            ((model(torch.randn(64, 8)) ** 2).mean() + 20 * (step >= 100)).backward()
            optimizer.step()
    assert [alert.step for alert in scope.alerts if alert.rule == "loss spike"] == ([] if new else [101]), (
        "no gradient jumps with it: two losses are waited for"
    )


@pytest.mark.parametrize("loads", ["never", "at step 97", "all the time"])
def test_a_loss_rises_where_a_target_is_renewed(loads: str) -> None:
    torch.manual_seed(0)
    model, target = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with numscope.watch(model) as scope:
        for step in range(130):
            if loads == "all the time" or (loads == "at step 97" and step == 97):
                target.load_state_dict(target.state_dict())
            if step == 97:
                target.weight.data += 3.0
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            (model(x) - target(x).detach() if step >= 97 else model(x) * 0.1).square().mean().backward()
            optimizer.step()
    spikes = [alert.step for alert in scope.alerts if alert.rule == "loss spike"]
    assert bool(spikes) == (loads != "at step 97"), spikes


@pytest.mark.parametrize("is_data", [True, False])
def test_input_that_another_module_has_made_is_no_odd_batch(is_data: bool) -> None:
    torch.manual_seed(0)
    body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=1e-4)
    with numscope.watch(head) as scope:
        for step in range(60):
            x = torch.randn(8, 4) * (100 if step > 57 else 1)
            optimizer.zero_grad()
            (head(x if is_data else body(x)) - 1).square().mean().backward()
            optimizer.step()
    assert [bool(alert.evidence["odd_inputs"]) for alert in scope.alerts if alert.rule == "loss spike"] == [is_data]
