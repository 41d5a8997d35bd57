"""Gradients that are all zero, step after step: as backward made them, whatever the script's own update does with them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

import numscope
from numscope.config.rule_table import RULES

STEPS = 40


class Net(nn.Module):
    """Its gradients are zero at a gain of zero, through and through."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor, gain: float) -> Tensor:
        return (self.last(torch.tanh(self.first(x))) * gain).square().mean()


def data(step: int) -> Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step))


Gain = Callable[[int], float]
Loop = Callable[[Net, Gain], None]


def tutorial(net: Net, gain: Gain) -> None:
    for step in range(STEPS):
        net(data(step), gain(step)).backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.01 * p.grad
                p.grad.zero_()


def by_data(net: Net, gain: Gain) -> None:
    for step in range(STEPS):
        net(data(step), gain(step)).backward()
        for p in net.parameters():
            p.data.add_(p.grad.data, alpha=-0.01)
            p.grad.data.zero_()


class Momentum:
    """An optimizer of somebody's own, as fastai's."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.state = {p: torch.zeros_like(p) for p in self.parameters}

    @torch.no_grad()
    def step(self) -> None:
        for p in self.parameters:
            if p.grad is not None:
                self.state[p].mul_(0.9).add_(p.grad)
                p.add_(self.state[p], alpha=-0.01)

    def zero_grad(self, set_to_none: bool = False) -> None:
        for p in self.parameters:
            if p.grad is not None:
                p.grad = None if set_to_none else p.grad.detach_().zero_()


def own_class(net: Net, gain: Gain) -> None:
    optimizer = Momentum(net.parameters())
    for step in range(STEPS):
        net(data(step), gain(step)).backward()
        optimizer.step()
        optimizer.zero_grad()


def own_class_and_none(net: Net, gain: Gain) -> None:
    optimizer = Momentum(net.parameters())
    for step in range(STEPS):
        net(data(step), gain(step)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def cleared_first(net: Net, gain: Gain) -> None:
    optimizer = Momentum(net.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        net(data(step), gain(step)).backward()
        optimizer.step()


def micro_batches(net: Net, gain: Gain) -> None:
    optimizer = Momentum(net.parameters())
    for step in range(STEPS):
        for part in range(3):
            net(data(3 * step + part), gain(step)).backward()
        optimizer.step()
        optimizer.zero_grad()


def masters(net: Net, gain: Gain) -> None:
    """A torch optimizer has copies, not the model's parameters."""
    copies = [nn.Parameter(p.detach().double()) for p in net.parameters()]
    optimizer = torch.optim.SGD(copies, lr=0.01)
    for step in range(STEPS):
        net(data(step), gain(step)).backward()
        for copy, p in zip(copies, net.parameters(), strict=True):
            copy.grad = p.grad.double()  # type: ignore[union-attr]
        net.zero_grad(set_to_none=False)
        optimizer.step()
        with torch.no_grad():
            for copy, p in zip(copies, net.parameters(), strict=True):
                p.copy_(copy)


def called_by_hand(net: Net, gain: Gain) -> None:
    """torch's own update as a function."""
    for step in range(STEPS):
        net(data(step), gain(step)).backward()
        with torch.no_grad():
            sgd(
                list(net.parameters()),
                [p.grad for p in net.parameters()],  # type: ignore[misc]
                [None] * 4,
                weight_decay=0.0,
                momentum=0.0,
                lr=0.01,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
        torch._foreach_zero_([p.grad for p in net.parameters()])


LOOPS = [tutorial, by_data, own_class, own_class_and_none, cleared_first, micro_batches, masters, called_by_hand]
NAMES = [loop.__name__ for loop in LOOPS]


def dead(net: nn.Module, training: Callable[[], None]) -> list[int]:
    with numscope.watch(net, on_nonfinite="warn") as scope:
        training()
    assert not scope.fault
    assert all(finding.kind.value == "dead_gradients" for finding in scope.findings)
    return [finding.step for finding in scope.findings]


@pytest.mark.parametrize("loop", LOOPS, ids=NAMES)
def test_gradients_that_the_script_clears_are_not_dead(loop: Loop) -> None:
    net = Net()
    before = net.last.weight.clone()
    assert dead(net, lambda: loop(net, lambda step: 1.0)) == []
    assert not torch.equal(before, net.last.weight)


@pytest.mark.parametrize("loop", LOOPS, ids=NAMES)
def test_gradients_that_are_made_zero_are_dead(loop: Loop) -> None:
    net = Net()
    found = dead(net, lambda: loop(net, lambda step: 0.0))
    assert found == [RULES["dead gradients"].settings["finding"] - 1]


@pytest.mark.parametrize("loop", LOOPS, ids=NAMES)
def test_gradients_that_die_later_are_dead(loop: Loop) -> None:
    net = Net()
    per_step = 3 if loop is micro_batches else 1  # each backward ends a step where nobody says otherwise
    found = dead(net, lambda: loop(net, lambda step: float(step < 20)))
    first = 20 * per_step + RULES["dead gradients"].settings["finding"] - 1
    assert found and found[0] in (first, first + 1)


@pytest.mark.parametrize("loop", LOOPS, ids=NAMES)
def test_gradients_that_are_zero_now_and_then_are_not_dead(loop: Loop) -> None:
    net = Net()
    assert dead(net, lambda: loop(net, lambda step: float(step % 3 == 2))) == []


def test_a_head_without_loss_is_not_the_model() -> None:
    """The gradient that is looked at first is zero for good, or from a step on."""
    for gain in (lambda step: 0.0, lambda step: float(step < 9)):
        net = nn.ModuleList([Net(), Net()])

        def training(net: nn.ModuleList = net, gain: Gain = gain) -> None:
            for step in range(STEPS):
                (net[0](data(step), 1.0) + net[1](data(step), gain(step)) + net[0](data(step), 0.0)).backward()
                with torch.no_grad():
                    for p in net.parameters():
                        p -= 0.01 * p.grad
                        p.grad.zero_()

        assert dead(net, training) == []


def test_gradients_that_are_used_as_they_come_are_not_dead() -> None:
    net = Net()

    def use(p: Tensor) -> None:
        p.data.add_(p.grad, alpha=-0.01)  # type: ignore[arg-type]
        p.grad.zero_()  # type: ignore[union-attr]

    def training() -> None:
        for p in net.parameters():
            p.register_post_accumulate_grad_hook(use)
        for step in range(STEPS):
            net(data(step), 1.0).backward()

    assert dead(net, training) == []


def test_optimizers_that_step_inside_backward_and_clear_are_not_dead() -> None:
    net = Net()

    def training() -> None:
        optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in net.parameters()}

        def use(p: nn.Parameter) -> None:
            optimizers[p].step()
            optimizers[p].zero_grad(set_to_none=False)

        for p in net.parameters():
            p.register_post_accumulate_grad_hook(use)  # type: ignore[arg-type]
        for step in range(STEPS):
            net(data(step), 1.0).backward()

    assert dead(net, training) == []


def test_gradients_that_are_returned_leave_old_zeros_behind() -> None:
    net = Net()

    def training() -> None:
        net(data(0), 1.0).backward()
        net.zero_grad(set_to_none=False)
        for step in range(STEPS):
            found = torch.autograd.grad(net(data(step), 1.0), list(net.parameters()))
            with torch.no_grad():
                for p, gradient in zip(net.parameters(), found, strict=True):
                    p -= 0.01 * gradient

    assert dead(net, training) == []


def test_two_models_by_hand_are_alive_and_one_of_them_dead() -> None:
    nets = Net(), Net()

    def training(second: float) -> None:
        for step in range(STEPS):
            for net, gain in zip(nets, (1.0, second), strict=True):
                net(data(step), gain).backward()
                with torch.no_grad():
                    for p in net.parameters():
                        p -= 0.01 * p.grad
                        p.grad.zero_()

    for gain, found in ((1.0, []), (0.0, [RULES["dead gradients"].settings["finding"] - 1])):
        with numscope.watch(nets[0], on_nonfinite="warn") as left, numscope.watch(nets[1], on_nonfinite="warn") as right:
            training(gain)
        assert left.findings == [] and [one.step for one in right.findings] == found


def test_what_a_torch_optimizer_gets_counts_for_it() -> None:
    """Cleared in place before its step: backward made gradients, and it gets none."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def training(clears: bool) -> None:
        for step in range(STEPS):
            net(data(step), 1.0).backward()
            if clears:
                optimizer.zero_grad(set_to_none=False)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    assert dead(net, lambda: training(clears=False)) == []
    assert dead(net, lambda: training(clears=True)) == [RULES["dead gradients"].settings["finding"] - 1]


def test_steps_that_the_script_ends_itself() -> None:
    for gain, found in ((1.0, []), (0.0, [RULES["dead gradients"].settings["finding"] - 1])):
        net = Net()
        with numscope.watch(net, on_nonfinite="warn") as scope:
            for step in range(STEPS):
                for part in range(3):
                    net(data(3 * step + part), gain).backward()
                with torch.no_grad():
                    for p in net.parameters():
                        p -= 0.01 * p.grad
                        p.grad.zero_()
                scope.step()
        assert [one.step for one in scope.findings] == found
