"""A Function's backward that is not the derivative of its forward is named with its operand and kind; a right one, or one that is meant
so, is not."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

import numscope
from numscope.detect import experiments


def function(name: str, forward: Any, backward: Any) -> Any:
    """A Function that saves its arguments; its backward gets the gradient and them."""

    def saves(ctx: Any, *args: Any) -> Any:
        ctx.save_for_backward(*args)
        return forward(*args)

    def gives(ctx: Any, gradient: Tensor) -> Any:
        return backward(gradient, *ctx.saved_tensors)

    saves.__signature__ = inspect.signature(lambda ctx, x, w=None: None)  # type: ignore[attr-defined]
    return type(name, (Function,), {"forward": staticmethod(saves), "backward": staticmethod(gives), "__module__": __name__})


class Applies(nn.Module):
    """A layer, a Function of its result and perhaps of a weight, a layer."""

    def __init__(self, made: Any, weight: Tensor | None) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 1)
        self.weight = None if weight is None else nn.Parameter(weight)
        self.made = made

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = self.made(x) if self.weight is None else self.made(x, self.weight)
        return self.last(x)


def alerts(made: Any, weight: Tensor | None = None, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Any]:
    torch.manual_seed(seed)
    model = Applies(made, weight).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with numscope.watch(model, check="gradients:at=0") as scope:
        model(torch.randn(32, 6, dtype=dtype)).mean().backward()
        optimizer.step()
    return [alert for alert in scope.alerts if alert.rule == "wrong gradient"]


def normalized(x: Tensor) -> Tensor:
    return x / x.square().mean(-1, keepdim=True).sqrt()


def of_normalized(gradient: Tensor, x: Tensor) -> Tensor:
    scale = x.square().mean(-1, keepdim=True).sqrt()
    return gradient / scale - x * (gradient * x).mean(-1, keepdim=True) / scale**3


WRONG: dict[str, tuple[Any, Any, bool, str, str]] = {
    "a factor": (lambda x: x**3, lambda g, x: g * x**2, False, "x", "0.3333 times what it should be"),
    "too large": (lambda x: x.sigmoid(), lambda g, x: 4 * g * x.sigmoid() * (1 - x.sigmoid()), False, "x", "4 times too large"),
    "the sign": (lambda x: x.cos(), lambda g, x: g * x.sin(), False, "x", "of the opposite sign"),
    "grad_output is not used": (lambda x: x.square(), lambda g, x: 2 * x, False, "x", "not multiplied by the gradient of the result"),
    "a missing term": (normalized, lambda g, x: g / x.square().mean(-1, keepdim=True).sqrt(), False, "x", "another one (slopes"),
    "a transposed operand": (lambda x, w: x @ w, lambda g, x, w: (g @ w, x.mT @ g), True, "x", "another one (slopes"),
    "none for a weight": (lambda x, w: x * w, lambda g, x, w: (g * w, None), True, "w", "none, or zeros, though the result depends on it"),
    "a mean in place of a sum": (lambda x, w: x * w, lambda g, x, w: (g * w, (g * x).mean(0)), True, "w", "0.03125 times what"),
    "one row of many": (lambda x, w: x * w, lambda g, x, w: (g * w, (g * x)[0]), True, "w", "another one (slopes"),
    "at another point": (lambda x: x.square(), lambda g, x: 2 * g * (x + 1), False, "x", "another one (slopes"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_backward_is_named_with_operand_and_kind(case: str) -> None:
    forward, backward, has_weight, operand, kind = WRONG[case]
    made = function("Wrong", forward, backward)
    found = alerts(made.apply, torch.rand(6, 6) if case == "a transposed operand" else torch.rand(6) if has_weight else None)
    assert len(found) == 1 and f"Wrong's backward ({__file__}:" in found[0].text
    assert f"gives {operand} a gradient that is {kind}" in found[0].text
    assert found[0].asks and found[0].evidence["line"].startswith(f"{__file__}:") and "float64" in found[0].text


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda true, missing: true - missing, "another one (slopes"),
        (lambda true, missing: 2 * true, "2 times too large"),
        (lambda true, missing: true / 3, "0.3333 times what it should be"),
        (lambda true, missing: -true, "of the opposite sign"),
    ],
)
def test_of_a_single_number_only_a_whole_factor_is_told_as_one(wrong: Any, kind: str) -> None:
    """Any two numbers are a multiple of each other."""

    def backward(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        slope, missing = x * (x * w).sigmoid() / w, -F.softplus(x * w) / w**2
        return g * (x * w).sigmoid(), wrong((g * (slope + missing)).sum(), (g * missing).sum())

    made = function("Soft", lambda x, w: F.softplus(x * w) / w, backward)
    (alert,) = alerts(made.apply, torch.tensor(1.5))
    assert f"gives w a gradient that is {kind}" in alert.text


@pytest.mark.parametrize("in_float32", [False, True])
def test_whether_it_is_named_does_not_depend_on_the_numbers(in_float32: bool) -> None:
    """A slope may be near 0 in one direction by chance: with three of these seeds at least it is. float32 rounds."""

    def forward(x: Tensor, w: Tensor) -> Tensor:
        if in_float32 and x.dtype == torch.float64:
            raise TypeError
        return x * w**2

    halved = function("Halved", forward, lambda g, x, w: (g * w**2, (g * x * w).sum(0)))
    right = function("Right", forward, lambda g, x, w: (g * w**2, (2 * g * x * w).sum(0)))
    for seed in range(6):
        found = alerts(halved.apply, torch.rand(6, generator=torch.Generator().manual_seed(seed)), seed=seed)
        assert [alert.evidence["line"].startswith(__file__) for alert in found] == [True], seed
        assert "gives w a gradient that is 0.5 times what it should be" in found[0].text
        assert alerts(right.apply, torch.rand(6), seed=seed) == []


def test_a_gradient_that_could_not_be_asked_for_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("numscope.replay.function_gradients.MOST_SECONDS", -1.0)
    assert alerts(function("Wrong", lambda x: x**3, lambda g, x: g).apply) == []
    assert "step 0 was not checked in full: the gradients of Wrong and those after it were not asked for: -1 s were over." in caplog.text


def strided(gradient: Tensor, x: Tensor) -> Tensor:
    """Reads its argument's memory as a kernel would that takes it for contiguous."""
    return gradient.as_strided(gradient.shape, gradient.new_empty(gradient.shape).stride()) * x.cos()


def in_bfloat16(gradient: Tensor, x: Tensor) -> Tensor:
    return gradient * x.cos() * (1 if x.dtype is not torch.bfloat16 else torch.arange(x.shape[-1]) % 2)


@pytest.mark.parametrize(
    ("backward", "dtype", "kind"),
    [
        (strided, torch.float32, "another one where the gradient of the result (grad_output) is not contiguous"),
        (in_bfloat16, torch.bfloat16, "in bfloat16 alone"),
        (in_bfloat16, torch.float32, ""),
    ],
)
def test_a_backward_that_is_wrong_for_some_strides_or_in_one_dtype_is_named(backward: Any, dtype: torch.dtype, kind: str) -> None:
    found = alerts(function("Wrong", lambda x: x.sin(), backward).apply, dtype=dtype)
    assert [kind in alert.text for alert in found] == ([True] if kind else [])


MEANT: dict[str, tuple[Any, Any]] = {
    "right": (lambda x: x.sigmoid() * x, lambda g, x: g * (x.sigmoid() + x * x.sigmoid() * (1 - x.sigmoid()))),
    "right, normalized": (normalized, of_normalized),
    "right, in float32 inside": (lambda x: x.float().exp().to(x.dtype), lambda g, x: g * x.exp()),
    "right, relu": (lambda x: x.clamp_min(0), lambda g, x: g * (x > 0)),
    "right, relu, at 0": (lambda x: (x * (x.abs() > 0.3)).clamp_min(0), lambda g, x: g * (x > 0.3)),
    "straight-through": (lambda x: (x * 4).round() / 4, lambda g, x: g),
    "a spike": (lambda x: (x > 0).to(x.dtype), lambda g, x: g / (1 + x.abs()) ** 2),
    "fake fp8": (
        lambda x: (x * 448 / x.abs().amax()).to(torch.float8_e4m3fn).to(x.dtype) * x.abs().amax() / 448,
        lambda g, x: g,
    ),
    "reversed": (lambda x: x.view_as(x), lambda g, x: -0.1 * g),
    "clipped": (lambda x: x.clone(), lambda g, x: g.clamp(-1e-3, 1e-3)),
}


@pytest.mark.parametrize("case", MEANT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_right_backward_and_one_that_is_meant_so_are_not_named(case: str, dtype: torch.dtype) -> None:
    assert alerts(function("Right", *MEANT[case]).apply, dtype=dtype) == []


@pytest.mark.parametrize("in_place", [False, True], ids=["forked", "in place"])
def test_random_numbers_of_a_forward_are_the_same_in_its_differences_and_no_generator_moves(
    in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_place:
        monkeypatch.setattr(experiments, "in_child", lambda *args, **options: None)

    class Drops(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            mask = (torch.rand_like(x) < 0.5).to(x.dtype) * 2
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return gradient * ctx.saved_tensors[0]

    assert alerts(Drops.apply) == []
    watched = torch.get_rng_state()
    torch.manual_seed(0)
    model = Applies(Drops.apply, None)
    model(torch.randn(32, 6))
    assert torch.equal(torch.get_rng_state(), watched)


def test_functions_with_setup_context_and_registered_operators_are_asked_too() -> None:
    class Late(Function):
        @staticmethod
        def forward(x: Tensor, w: Tensor) -> Tensor:  # type: ignore[override]
            return x * w

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
            x, w = ctx.saved_tensors
            return gradient * w, 2 * (gradient * x).sum(0)

    [alert] = alerts(Late.apply, torch.rand(6))
    assert "gives w a gradient that is 2 times too large" in alert.text

    @torch.library.custom_op("numscope_tests::soft", mutates_args=())
    def soft(x: Tensor) -> Tensor:
        return x.tanh()

    soft.register_autograd(
        lambda ctx, g: -g * (1 - ctx.result**2), setup_context=lambda ctx, inputs, output: setattr(ctx, "result", output)
    )
    [alert] = alerts(soft)
    assert "soft_default's backward" in alert.text and "of the opposite sign" in alert.text


def test_an_application_that_gives_its_operand_back_hides_no_other() -> None:
    scaled = function("Scaled", lambda x, w: x * w, lambda g, x, w: (g * w, (g * x).sum(0) * 3))
    ones = torch.ones(6, requires_grad=True)
    [alert] = alerts(lambda x, w: scaled.apply(scaled.apply(x, ones), w), torch.rand(6))
    assert "gives w a gradient that is 3 times too large" in alert.text


def test_each_function_of_a_module_is_in_one_alert() -> None:
    half, negative = (
        function("Half", lambda x: x * x, lambda g, x: g * x),
        function("Negative", lambda x: x.sin(), lambda g, x: -g * x.cos()),
    )
    [alert] = alerts(lambda x: negative.apply(half.apply(x)))
    assert "Half's backward" in alert.text and "Negative's backward" in alert.text


def squared(x: Tensor) -> Tensor:
    return x.square()


@pytest.mark.parametrize(("factor", "said"), [(1.0, False), (0.5, True)])
def test_a_function_in_the_loss_is_asked_too(factor: float, said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._dynamo.utils.counters", {})  # as where nothing was compiled
    made = function("Loss", squared, lambda g, x: factor * g * 2 * x)
    model = nn.Linear(6, 1)
    forward = made.forward
    with numscope.watch(model, check="gradients:at=0") as scope:
        for _ in range(2):
            made.apply(model(torch.randn(8, 6))).mean().backward()
            assert made.forward is forward
    found = [(alert.layer, alert.evidence["code"]) for alert in scope.alerts if alert.rule == "wrong gradient"]
    assert found == ([("", "made.apply(model(torch.randn(8, 6))).mean().backward()")] if said else [])


def test_a_watch_that_ends_without_a_backward_leaves_functions_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._dynamo.utils.counters", {})
    made = function("Loss", squared, lambda g, x: g * 2 * x)
    model, forward = nn.Linear(6, 1), made.forward
    with numscope.watch(model, check="gradients:at=0"):
        model(torch.randn(8, 6))
        assert made.forward is not forward
    assert made.forward is forward
