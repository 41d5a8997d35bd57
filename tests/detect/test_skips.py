"""Where GradScaler skips every step from the first on: a finding after as many skips as its scale explains, and the rule's ``finding``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam, AdamW, Optimizer

import numscope
from numscope.config.rule_table import RULES

ROOT = Path(__file__).parents[2]
OF_SEARCH = 17  # skips that lead from torch's first scale, 2^16, below 1
NUM = OF_SEARCH + RULES["scale falls"].settings["finding"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


class Overflows(torch.autograd.Function):
    """Its gradient is infinite at any scale, or above one."""

    @staticmethod
    def forward(ctx: object, x: Tensor, most: float) -> Tensor:
        ctx.most = most  # type: ignore[attr-defined]
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None]:
        most: float = ctx.most  # type: ignore[attr-defined]
        return torch.where(gradient.abs().amax() >= most, torch.full_like(gradient, torch.inf), gradient), None


def loss_of(net: nn.Module, step: int, most: float) -> Tensor:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
    return Overflows.apply(net(x).square().mean(), most)


Loop = Callable[[nn.Module, Optimizer, Callable[[int], float], int], None]


def plain(net: nn.Module, optimizer: Optimizer, most: Callable[[int], float], steps: int) -> None:
    scaler = GradScaler("cpu")
    for step in range(steps):
        optimizer.zero_grad()
        scaler.scale(loss_of(net, step, most(step))).backward()
        scaler.step(optimizer)
        scaler.update()


def made_anew(net: nn.Module, optimizer: Optimizer, most: Callable[[int], float], steps: int) -> None:
    for step in range(steps):
        scaler = GradScaler("cpu")
        optimizer.zero_grad()
        scaler.scale(loss_of(net, step, most(step))).backward()
        scaler.step(optimizer)


def set_back(net: nn.Module, optimizer: Optimizer, most: Callable[[int], float], steps: int) -> None:
    scaler = GradScaler("cpu")
    for step in range(steps):
        optimizer.zero_grad()
        scaler.scale(loss_of(net, step, most(step))).backward()
        scaler.step(optimizer)
        scaler.update(65536.0)


def unscaled_and_clipped(net: nn.Module, optimizer: Optimizer, most: Callable[[int], float], steps: int) -> None:
    scaler = GradScaler("cpu")
    for step in range(steps):
        scaler.scale(loss_of(net, step, most(step))).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=False)


def cured_too_late(net: nn.Module, optimizer: Optimizer, most: Callable[[int], float], steps: int) -> None:
    """GradScaler has seen the infinity when it unscaled."""
    scaler = GradScaler("cpu")
    for step in range(steps):
        optimizer.zero_grad()
        scaler.scale(loss_of(net, step, most(step))).backward()
        scaler.unscale_(optimizer)
        for p in net.parameters():
            p.grad = torch.nan_to_num(p.grad, 0.0, 0.0, 0.0)  # type: ignore[arg-type]
        scaler.step(optimizer)
        scaler.update()


def own_skip(net: nn.Module, optimizer: Optimizer, most: Callable[[int], float], steps: int) -> None:
    scaler = GradScaler("cpu")
    for step in range(steps):
        optimizer.zero_grad()
        scaler.scale(loss_of(net, step, most(step))).backward()
        scaler.unscale_(optimizer)
        if all(p.grad.isfinite().all() for p in net.parameters() if p.grad is not None):
            optimizer.step()
        scaler.update()


def own_skip_by_norm(net: nn.Module, optimizer: Optimizer, most: Callable[[int], float], steps: int) -> None:
    """Gradients are gone when the scale is lowered."""
    scaler = GradScaler("cpu")
    for step in range(steps):
        scaler.scale(loss_of(net, step, most(step))).backward()
        scaler.unscale_(optimizer)
        norm = clip_grad_norm_(net.parameters(), 1.0)
        if norm.isfinite():
            scaler.step(optimizer)
        optimizer.zero_grad()
        scaler.update()


LOOPS = [plain, made_anew, set_back, unscaled_and_clipped, cured_too_late, own_skip, own_skip_by_norm]
NAMES = [loop.__name__ for loop in LOOPS]


@pytest.mark.parametrize(
    ("loop", "fused"), [(plain, False), *((loop, bool(i % 2)) for i, loop in enumerate(LOOPS, 1))], ids=lambda v: getattr(v, "__name__", v)
)
def test_a_run_in_which_every_step_is_skipped_has_a_finding(loop: Loop, fused: bool) -> None:
    torch.manual_seed(0)
    net = Net()
    before = [p.detach().clone() for p in net.parameters()]
    with numscope.watch(net, on_nonfinite="warn", alerts="off") as scope:
        loop(net, Adam(net.parameters(), fused=True) if fused else SGD(net.parameters(), lr=0.1), lambda step: 0.0, NUM + 10)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert len(scope.events) == NUM + 10
    assert [(one.kind.value, one.step) for one in scope.findings] == [("scaler_skips", NUM - 1)]
    assert f"GradScaler left out {NUM} steps in a row" in scope.findings[0].note


@pytest.mark.parametrize("loop", LOOPS, ids=NAMES)
def test_a_search_for_the_scale_is_none(loop: Loop) -> None:
    """Down to the last scale that GradScaler tries before 1; where the scale does not move, as many steps."""
    torch.manual_seed(0)
    net = Net()
    with numscope.watch(net, on_nonfinite="warn", alerts="off") as scope:
        loop(net, AdamW(net.parameters()), lambda step: 2.0 if step < OF_SEARCH else 1e30, 40)
    assert scope.findings == [] and len(scope.events) >= OF_SEARCH - 1


@pytest.mark.parametrize("loop", LOOPS, ids=NAMES)
def test_skips_now_and_then_are_none(loop: Loop) -> None:
    torch.manual_seed(0)
    net = Net()
    with numscope.watch(net, on_nonfinite="warn", alerts="off") as scope:
        loop(net, SGD(net.parameters(), lr=0.01), lambda step: 0.0 if step % 12 in (3, 4, 5, 8) else 1e30, 96)
    assert scope.findings == [] and len(scope.events) == 32 > NUM
    assert scope.step_number == 96


@pytest.mark.parametrize("loop", LOOPS, ids=NAMES)
def test_a_run_that_has_trained_and_skips_ever_after_has_a_finding(loop: Loop) -> None:
    torch.manual_seed(0)
    net = Net()
    with numscope.watch(net, on_nonfinite="warn", alerts="off") as scope:
        loop(net, SGD(net.parameters(), lr=0.01), lambda step: 0.0 if step >= 20 else 1e30, 40)
    assert [(one.kind.value, one.step) for one in scope.findings] == [("scaler_skips", 20 + RULES["scale falls"].settings["finding"] - 1)]


@pytest.mark.parametrize(("first", "backoff", "of_search"), [(2.0**8, 0.5, 9), (2.0**32, 0.5, 33), (2.0**16, 0.25, 9), (1.0, 0.5, 1)])
def test_the_first_scale_and_what_lowers_it_say_how_long_a_search_may_be(first: float, backoff: float, of_search: int) -> None:
    net = Net()
    optimizer, scaler = SGD(net.parameters(), lr=0.1), GradScaler("cpu", first, backoff_factor=backoff)
    with numscope.watch(net, on_nonfinite="warn", alerts={"mode": "off", "scale falls": {"finding": 2}}) as scope:
        for step in range(50):
            optimizer.zero_grad()
            scaler.scale(loss_of(net, step, 0.0)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [one.step for one in scope.findings] == [of_search + 2 - 1]


@pytest.mark.parametrize("own", [own_skip, own_skip_by_norm])
def test_watched_or_not_the_scaler_and_the_weights_are_the_same(own: Loop) -> None:
    found = []
    for watched in (False, True):
        torch.manual_seed(0)
        net = Net()
        scope = numscope.watch(net, on_nonfinite="warn", alerts="off") if watched else None
        own(net, SGD(net.parameters(), lr=0.01), lambda step: 2.0**14 if step % 7 else 0.0, 40)
        if scope is not None:
            scope.close()
        found.append([p.detach().clone() for p in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


ALONE = """
from tests.detect.test_skips import *
for own in own_skip, own_skip_by_norm:
    net = Net()
    with numscope.watch(net, on_nonfinite="warn", alerts="off"):
        own(net, SGD(net.parameters(), lr=0.01), lambda step: 2.0**14 if step % 7 else 0.0, 15)
    assert not any(hasattr(getattr(GradScaler, name), "__wrapped__") for name in ("step", "unscale_", "update")), own
"""


def test_nothing_of_the_scaler_stays_patched() -> None:
    """In a process of its own, where no other test has left anything."""
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_step_that_the_script_takes_all_the_same_is_no_skip() -> None:
    net = Net()
    optimizer, scaler = SGD(net.parameters(), lr=0.1), GradScaler("cpu")
    with numscope.watch(net, on_nonfinite="warn", alerts="off") as scope:
        for step in range(3):
            optimizer.zero_grad()
            scaler.scale(loss_of(net, step, 0.0 if step == 1 else 1e30)).backward()
            scaler.unscale_(optimizer)
            optimizer.step()
            scaler.update()
    assert scope.events == [] and [(one.kind.value, one.step) for one in scope.findings] == [("inf", 1)]


@pytest.mark.parametrize("finite_in", [0, 1], ids=["never", "every second step"])
def test_forward_that_is_bad_at_any_scale_is_not_part_of_the_search(finite_in: int) -> None:
    """No scale of the loss cures a model that returns nan: its steps count from the first."""

    class Spoiled(Net):
        num = 0

        def forward(self, x: Tensor) -> Tensor:
            self.num += 1
            factor = 1.0 if finite_in and self.num % 2 else float("inf")
            return super().forward(x) * (0 * torch.tensor(factor))

    net = Spoiled()
    optimizer, scaler = SGD(net.parameters(), 0.01), GradScaler("cpu")

    def train(num_steps: int) -> None:
        for step in range(num_steps):
            optimizer.zero_grad()
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
            scaler.scale(net(x).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()

    with numscope.watch(net, alerts={"scale falls": {"finding": 4}}) as scope:
        if finite_in:
            train(12)
            assert not scope.findings
        else:
            with pytest.raises(numscope.NonFiniteError) as raised:
                train(12)
            finding = raised.value.finding
            assert (finding.step, finding.kind.value) == (3, "scaler_skips")
            assert finding.culprit is not None and finding.culprit.op == "aten.mul"


@pytest.mark.parametrize("bad_steps", [3, 1])
def test_run_that_ends_without_a_step_for_a_bad_forward_ends_with_its_finding(bad_steps: int) -> None:
    """Too short for a finding of skips; the first such step is a note with its line. One step that was taken, and the note is all."""

    class Rooted(Net):
        def forward(self, x: Tensor) -> Tensor:
            return (super().forward(x) * 0 - 1).sqrt() if self.is_bad else super().forward(x)

        is_bad = True

    net = Rooted()
    optimizer, scaler = SGD(net.parameters(), 0.01), GradScaler("cpu")

    def train() -> None:
        for step in range(3):
            optimizer.zero_grad()
            net.is_bad = step < bad_steps
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
            scaler.scale(net(x).sum()).backward()
            scaler.step(optimizer)
            scaler.update()

    scope = numscope.watch(net)
    train()
    (note,) = scope.contained
    assert note.note == "GradScaler left this step out"
    if bad_steps < 3:
        scope.close()
        assert not scope.findings
    else:
        with pytest.raises(numscope.NonFiniteError) as raised:
            scope.close()
        finding = raised.value.finding
        assert (finding.note, finding.step) == ("GradScaler left out all 3 steps", 0)
        assert finding.culprit is not None and finding.culprit.op == "aten.sqrt"
