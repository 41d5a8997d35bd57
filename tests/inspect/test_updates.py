"""Optimizer states as tensors, and what else is read around an optimizer's step, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.inspect import dynamics
from numscope.inspect.dynamics import sign_agreement
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
            seen = by_tensor(scope._watch.inspector.last)
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
    [found] = scope._watch.inspector.last
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
    assert {o.tensor for o in scope._watch.inspector.last} == {"exp_avg[in_proj_weight]", "exp_avg"}


def test_a_state_that_the_optimizer_does_not_keep_is_said_once(net: Net, caplog: Any) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, config=of_weights(["exp_avg", "weight"], ["max"], "fc"), on_nonfinite=None, loggers=[Kept()]) as scope:
        train(net, optimizer, 3)
    assert {o.tensor for o in scope._watch.inspector.last} == {"weight"}
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
            assert len(scope._watch.inspector.last) == 8 and not scope._watch.inspector.fault
            scope.close()
        states = [optimizer.state[p][name] for p in net.parameters() for name in ("exp_avg", "exp_avg_sq")]
        return [*losses, torch.rand(()).item()], [*map(Tensor.detach, net.parameters()), *states]

    (off, bare), (on, watched) = run(False), run(True)
    assert off == on and all(map(torch.equal, bare, watched))


# ---- signs of gradient and momentum


def agreement(gradient: np.ndarray, momentum: np.ndarray) -> float | None:
    counted = np.isfinite(gradient) & np.isfinite(momentum) & (gradient != 0) & (momentum != 0)
    return 100 * (np.sign(gradient) == np.sign(momentum))[counted].mean() if counted.any() else None


WITH_MOMENTUM: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda ps: torch.optim.Adam(ps, lr=0.1),
    "adam fused": lambda ps: torch.optim.AdamW(ps, lr=0.1, fused=True),
    "momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.5),
}


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("name", WITH_MOMENTUM)
def test_agreement_is_of_the_gradient_with_the_momentum_before_the_step(net: Net, name: str, maximize: bool) -> None:
    optimizer = WITH_MOMENTUM[name](net.parameters())
    optimizer.param_groups[0]["maximize"] = maximize
    key = "momentum_buffer" if name == "momentum" else "exp_avg"
    net.fc1.weight.data[3] = 0  # the gradient of what follows it stays, its own too
    before: np.ndarray | None = None
    values = []
    with numscope.watch(net, config=of_weights(["weight"], ["momentum_agreement_pct"]), on_nonfinite=None, loggers=[Kept()]) as scope:
        for gradient in course(net, optimizer, 5):
            expected = None if before is None else agreement(-gradient if maximize else gradient, before)
            values.append(scope._watch.inspector.last[0].values["momentum_agreement_pct"])
            assert values[-1] == (None if expected is None else pytest.approx(expected, rel=1e-12))
            before = exact(optimizer.state[net.fc1.weight][key])
    assert values[0] is None and any(value not in (None, 0.0, 100.0) for value in values)


def test_zeros_and_what_is_not_finite_have_no_direction() -> None:
    nan, inf = float("nan"), float("inf")
    gradient = torch.tensor([1.0, -1.0, 0.0, -0.0, nan, inf, 2.0, -3.0, 1e-45])
    momentum = torch.tensor([2.0, 1.0, 1.0, -1.0, 1.0, 1.0, -0.0, -inf, 1e-45], dtype=torch.float32)
    assert sign_agreement(gradient, momentum).tolist() == [3, 2]
    assert sign_agreement(gradient, momentum, maximize=True).tolist() == [3, 1]
    assert sign_agreement(gradient.bfloat16(), momentum).tolist() == [2, 1]  # the subnormal became zero
    assert sign_agreement(gradient, momentum[:4]) is None


@pytest.mark.parametrize("size", [7, 1 << 16])
def test_pieces_add_up_to_the_agreement_of_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamics, "PIECE_NUMEL", size)
    generator = torch.Generator().manual_seed(0)
    gradient, momentum = (torch.randn(31, 13, generator=generator).relu() - torch.rand(31, 13, generator=generator) for _ in range(2))
    counted, agreeing = sign_agreement(gradient.t(), momentum.t()).tolist()
    assert 100 * agreeing / counted == pytest.approx(agreement(exact(gradient), exact(momentum)), rel=1e-12)


def test_an_optimizer_without_momentum_is_said_once(net: Net, caplog: Any) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with numscope.watch(net, config=of_weights(["weight"], ["momentum_agreement_pct"]), on_nonfinite=None, loggers=[Kept()]):
        train(net, optimizer, 3)
    assert caplog.text.count("SGD keeps no state exp_avg or momentum_buffer on this rank for the weights of fc1") == 1


def test_merged_agreement_counts_elements_alike(net: Net) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    what = of_weights(["weight"], ["momentum_agreement_pct"], "fc", merge="all")
    with numscope.watch(net, config=what, on_nonfinite=None, loggers=[Kept()]) as scope:
        train(net, optimizer, 3)
    one, two, merged = scope._watch.inspector.last
    both = [o.extras["num_signs_agreeing"] for o in (one, two)], [o.extras["num_signs"] for o in (one, two)]
    assert merged.values["momentum_agreement_pct"] == pytest.approx(100 * sum(both[0]) / sum(both[1]), rel=1e-12)


# ---- matrices as wholes


def test_stable_rank_is_that_of_the_singular_values(net: Net) -> None:
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    what = of_weights(["weight", "wgrad"], ["stable_rank", "spectral_norm"], "fc", merge="all")
    weights = [exact(net.fc1.weight), exact(net.fc2.weight)]
    with numscope.watch(net, config=what, on_nonfinite=None, loggers=[Kept()]) as scope:
        train(net, optimizer, 1)
    seen = by_tensor(scope._watch.inspector.last)
    spectra = [np.linalg.svd(weight, compute_uv=False) for weight in weights]
    for name, spectrum in zip(("fc1", "fc2"), spectra, strict=True):
        expected = {"stable_rank": (spectrum**2).sum() / spectrum[0] ** 2, "spectral_norm": spectrum[0]}
        assert seen[name, "weight"].values == pytest.approx(expected, rel=1e-12)
    together = np.concatenate(spectra)  # those of the matrix that has both on its diagonal
    expected = {"stable_rank": (together**2).sum() / together.max() ** 2, "spectral_norm": together.max()}
    assert seen["all", "weight"].values == pytest.approx(expected, rel=1e-12)
    gradient = np.linalg.svd(exact(net.fc2.weight.grad), compute_uv=False)  # type: ignore[arg-type]
    assert seen["fc2", "wgrad"].values["stable_rank"] == pytest.approx((gradient**2).sum() / gradient[0] ** 2, rel=1e-6)


def test_stable_rank_of_zeros_or_with_a_nan_is_absent(net: Net) -> None:
    net.fc1.weight.data.zero_()
    net.fc2.weight.data[0, 0] = float("nan")
    with numscope.watch(net, config=of_weights(["weight"], ["stable_rank"], "fc"), on_nonfinite=None, loggers=[Kept()]) as scope:
        train(net, torch.optim.SGD(net.parameters(), lr=0.1), 1)
    assert [o.values for o in scope._watch.inspector.last] == [{"stable_rank": None}] * 2
