"""Optimizer states as tensors, and what else is read around an optimizer's step, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.records.errors import UsageError
from tests.inspect.test_inspector import Kept, Net, by_tensor, config, train


@pytest.fixture
def net() -> Iterator[Net]:
    torch.manual_seed(0)
    yield Net()


def exact(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().numpy().copy()


def of_weights(tensors: list[str], stats: list[Any], pattern: str = "fc1", **more: Any) -> dict[str, Any]:
    return config(pattern, tensors, stats, **more)


def course(model: Net, optimizer: torch.optim.Optimizer, steps: int) -> Iterator[np.ndarray]:
    """The gradient of fc1's weight at each step, given once the optimizer has stepped."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 6, generator=generator)).square().mean().backward()
        assert model.fc1.weight.grad is not None
        gradient = exact(model.fc1.weight.grad)
        optimizer.step()
        yield gradient


# ---- states


def test_adams_moments_are_read_as_the_step_has_left_them(net: Net) -> None:
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, betas=(0.9, 0.99))
    first = second = np.zeros((8, 6))
    with numscope.watch(net, config=of_weights(["exp_avg", "exp_avg_sq"], ["mean", "l2_norm", "min"]), loggers=[Kept()]) as scope:
        for step, gradient in enumerate(course(net, optimizer, 3)):
            first, second = 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient**2
            seen = by_tensor(scope.inspector.last)
            for name, moment in (("exp_avg", first), ("exp_avg_sq", second)):
                expected = {"mean": moment.mean(), "l2_norm": np.linalg.norm(moment), "min": moment.min()}
                assert seen["fc1", name].values == pytest.approx(expected, rel=1e-5, abs=1e-9), (step, name)
                assert seen["fc1", name].step == step


MAKERS: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], str]] = {
    "momentum_buffer": (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9), "momentum_buffer"),
    "state.square_avg": (lambda ps: torch.optim.RMSprop(ps, lr=0.01), "square_avg"),
    "state.max_exp_avg_sq": (lambda ps: torch.optim.Adam(ps, amsgrad=True, foreach=True), "max_exp_avg_sq"),
    "state.row_var": (lambda ps: torch.optim.Adafactor(ps), "row_var"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_any_state_is_read_by_the_optimizers_name_for_it(net: Net, name: str) -> None:
    make, key = MAKERS[name]
    optimizer = make(net.parameters())
    with numscope.watch(net, config=of_weights([name], ["max", "l2_norm"]), on_nonfinite=None, loggers=[Kept()]) as scope:
        train(net, optimizer, 2)
    [found] = scope.inspector.last
    state = exact(optimizer.state[net.fc1.weight][key])
    assert (found.name, found.fields["numel"]) == (f"fc1_{name}", state.size)
    assert found.values == pytest.approx({"max": state.max(), "l2_norm": np.linalg.norm(state)}, rel=1e-12)


def test_a_states_name_is_that_of_its_parameter() -> None:
    attention = nn.MultiheadAttention(8, 2, bias=False)
    optimizer = torch.optim.Adam(attention.parameters())
    with numscope.watch(attention, config=of_weights(["exp_avg"], ["max"], "."), on_nonfinite=None, loggers=[Kept()]) as scope:
        x = torch.randn(3, 2, 8)
        attention(x, x, x)[0].square().mean().backward()
        optimizer.step()
    assert {o.tensor for o in scope.inspector.last} == {"exp_avg[in_proj_weight]", "exp_avg"}


def test_a_state_that_the_optimizer_does_not_keep_is_said_once(net: Net, caplog: Any) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, config=of_weights(["exp_avg", "weight"], ["max"], "fc"), on_nonfinite=None, loggers=[Kept()]) as scope:
        train(net, optimizer, 3)
    assert {o.tensor for o in scope.inspector.last} == {"weight"}
    said = "SGD keeps no state exp_avg on this rank for the weights of fc1, fc2"
    assert caplog.text.count(said) == 1


def test_a_misspelt_state_is_refused(net: Net) -> None:
    with pytest.raises(UsageError, match=r'got "exp_avgs", expected one of .*exp_avg_sq.* Did you mean "exp_avg"'):
        numscope.watch(net, config=of_weights(["exp_avgs"], ["max"]))


@pytest.mark.parametrize("detect", [True, False])
def test_reading_states_leaves_the_training_bitwise_as_it_is(detect: bool) -> None:
    def run(watched: bool) -> tuple[list[float], list[Tensor]]:
        torch.manual_seed(0)
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        tensors = ["exp_avg", "exp_avg_sq", "state.step", "weight"]
        scope = None
        if watched:
            options: dict[str, Any] = {} if detect else {"on_nonfinite": None}
            scope = numscope.watch(net, config=of_weights(tensors, ["mean", "kurtosis"], "fc"), loggers=[Kept()], **options)
        losses = train(net, optimizer, 4, micro_batches=2)
        if scope is not None:
            assert len(scope.inspector.last) == 8 and not scope.inspector.fault
            scope.close()
        states = [optimizer.state[p][name] for p in net.parameters() for name in ("exp_avg", "exp_avg_sq")]
        return [*losses, torch.rand(()).item()], [*map(Tensor.detach, net.parameters()), *states]

    (off, bare), (on, watched) = run(False), run(True)
    assert off == on and all(map(torch.equal, bare, watched))
