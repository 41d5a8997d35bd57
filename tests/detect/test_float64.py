"""A step beside float64: each number is what the model gives in float64, wrong operations are named, and rounding is not one."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import numscope
from numscope.detect import experiments, float64
from numscope.detect.float64 import LOST, WRONG_RESULT
from numscope.replay.op import OpProbe
from numscope.replay.shadows import Shadows
from numscope.replay.tape import OpTape
from numscope.summary.ledger import Ledger

OURS = (WRONG_RESULT, LOST)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def operation(name: str, forward: Callable[[Tensor, Tensor], Tensor], backward: Callable[[Tensor, Tensor], Tensor] = product) -> Any:
    """An operator that multiplies matrices, as somebody's kernel does."""
    schema = "(Tensor a, Tensor b) -> Tensor"
    op = torch.library.custom_op(f"numscope_float64::{name}", forward, mutates_args=(), schema=schema)
    of_backward = torch.library.custom_op(f"numscope_float64::{name}_backward", backward, mutates_args=(), schema=schema)
    op.register_autograd(
        lambda ctx, g: (of_backward(g, ctx.saved_tensors[1].T.contiguous()), ctx.saved_tensors[0].T @ g),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    return op


def in_bfloat16(a: Tensor, b: Tensor) -> Tensor:
    return (a.bfloat16() @ b.bfloat16()).float() if a.dtype is torch.float32 else a @ b


def without_the_last_row(a: Tensor, b: Tensor) -> Tensor:
    out = a @ b
    if a.dtype is torch.float32:
        out[-1] = 0
    return out


def of_half_the_terms(a: Tensor, b: Tensor) -> Tensor:
    return a[:, ::2] @ b[::2] if a.dtype is torch.float32 else a @ b


def raises(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype is torch.float64:
        raise RuntimeError('"product" not implemented for Double')
    return a @ b


def dies(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype is torch.float64:
        os.abort()
    return a @ b


FORWARDS = {kind.__name__: operation(kind.__name__, kind) for kind in (in_bfloat16, without_the_last_row, of_half_the_terms)}
BACKWARDS = {kind.__name__: operation(f"b_{kind.__name__}", product, kind) for kind in (in_bfloat16, without_the_last_row)}
RAISES, DIES, RIGHT = operation("raises", raises), operation("dies", dies), operation("right", product)


class Net(nn.Module):
    def __init__(self, between: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.weight, self.last = nn.Linear(8, 8), nn.Parameter(torch.randn(8, 8)), nn.Linear(8, 4)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x), self.weight))


def train(net: nn.Module, **options: Any) -> list[Any]:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)
    dtype = next(net.parameters()).dtype
    with numscope.watch(net, check="float64:at=1", **options) as scope:
        for _ in range(3):
            net(torch.randn(16, 8, dtype=dtype)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return [alert for alert in scope.alerts if alert.rule in OURS]


@pytest.mark.parametrize("kind", FORWARDS)
def test_a_wrong_operation_is_named_with_its_line(kind: str) -> None:
    [alert] = train(Net(lambda a, b: FORWARDS[kind](a, b)))
    assert (alert.rule, alert.step, alert.layer, alert.asks) == (WRONG_RESULT, 1, "", False)
    assert alert.evidence["op"] == f"numscope_float64.{kind}" and "(forward) at " in alert.text
    assert alert.evidence["code"].endswith("FORWARDS[kind](a, b)))") and alert.evidence["line"].startswith(__file__)
    assert alert.value > 1e4 * alert.evidence["rounding"]


@pytest.mark.parametrize("kind", BACKWARDS)
def test_a_wrong_backward_operation_is_named_with_its_forwards_line(kind: str) -> None:
    [alert] = train(Net(lambda a, b: BACKWARDS[kind](a, b)))
    assert alert.rule == WRONG_RESULT and alert.evidence["op"] == f"numscope_float64.b_{kind}_backward"
    assert "(backward) at " in alert.text and alert.evidence["code"].endswith("BACKWARDS[kind](a, b)))")


def variance(a: Tensor, b: Tensor) -> Tensor:
    a = a + 4000
    var = (a * a).mean(-1, keepdim=True) - a.mean(-1, keepdim=True) ** 2
    return (a - a.mean(-1, keepdim=True)) / (var.abs() + 1e-5).sqrt()


def positions(a: Tensor, b: Tensor) -> Tensor:
    return a + torch.sin(torch.arange(len(a) * 40, dtype=torch.bfloat16)[::40] * 7.0)[:, None]


def versine(a: Tensor, b: Tensor) -> Tensor:
    angle = a / 3000
    return (1 - torch.cos(angle)) / angle**2


@pytest.mark.parametrize(("between", "op"), [(variance, "aten.sub"), (positions, "aten.sin"), (versine, "aten.rsub")])
def test_lost_precision_is_asked_about_with_the_operation_that_loses_it(between: Any, op: str) -> None:
    [alert] = train(Net(between))
    assert (alert.rule, alert.step, alert.asks) == (LOST, 1, True)
    assert (alert.evidence["op"], alert.layer) == (op, "") and f"most is lost in {op} (forward) at " in alert.text
    assert (
        "numscope.high_precision(model)" if between is positions else "in float64"
    ) in alert.advice and '{"precision is lost": False}' in alert.advice
    assert between is positions or not train(Net(between).double()), "in float64 nothing is lost"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_right_operations_are_left_alone(dtype: torch.dtype) -> None:
    assert train(Net(lambda a, b: RIGHT(a, b)).to(dtype)) == []


class ByAddress(torch.autograd.Function):
    """A right kernel that writes into a result by its address, as NumPy, C or Triton do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        np.multiply(x.detach().numpy(), 3.0, out=out.numpy())
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        given = torch.zeros_like(gradient)
        np.multiply(gradient.numpy(), 3.0, out=given.numpy())
        return given


class Normed(nn.Module):
    """A norm in float32 of what comes in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8).bfloat16(), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.first(x))
        return out


def test_torchs_own_kernel_that_adds_up_in_bfloat16_is_named() -> None:
    torch.manual_seed(0)
    model, x, g = Normed(), torch.randn(4096, 8).bfloat16(), torch.rand(4096, 8).bfloat16()
    with numscope.watch(model, check="float64:every=1", on_nonfinite="warn") as scope:
        for _ in range(2):  # the first is not checked
            model.zero_grad()
            (model(x) * g).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.0).step()
    assert model.norm.bias.grad is not None
    exact = g.double().sum(0)
    is_off = float((model.norm.bias.grad - exact).abs().max() / exact.abs().max()) > 0.5  # no longer, should torch mend it
    said = [alert.text for alert in scope.alerts if alert.rule == WRONG_RESULT]
    assert len(said) == is_off and all("aten.native_layer_norm_backward (backward)" in text for text in said)
    assert all("rounding (bfloat16) explains" in text for text in said)


def test_what_a_kernel_writes_by_its_address_is_taken_as_it_is() -> None:
    assert train(Net(lambda a, b: ByAddress.apply(a) + a @ b)) == []


def test_an_operation_that_does_not_run_in_float64_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert train(Net(lambda a, b: RAISES(a, b))) == []
    assert "without numscope_float64.raises, which does not run in float64." in caplog.text


def test_an_operation_that_ends_the_process_in_float64_is_said_and_training_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    assert train(Net(lambda a, b: DIES(a, b))) == []
    assert "float64: its process ended without a result" in caplog.text


def test_without_a_process_of_its_own_foreign_operations_are_not_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(experiments, "in_child", lambda *args, **options: None)
    assert train(Net(lambda a, b: DIES(a, b))) == []
    assert "without numscope_float64.dies, numscope_float64.dies_backward, which do not run in float64." in caplog.text
    [alert] = train(Net(variance))
    assert alert.evidence["op"] == "aten.sub"


def test_what_has_no_room_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(float64, "_room", lambda device: 1000)
    assert train(Net(variance)) == []
    assert "not done in float64: not reproduced: the replay raised TooLarge: The numbers in float64 need more than half" in caplog.text


def block(dtype: torch.dtype) -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(dtype)


class InPlace(nn.Module):
    """Views, writes into them, reductions with indices, and a part in float32."""

    up = torch.float32

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv1d(8, 16, 3, padding=1), nn.BatchNorm1d(16), nn.SiLU()).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x.transpose(1, 2)).transpose(1, 2)
        h = h.clone()
        h[:, 1:3].mul_(2).add_(h[:, :1])
        h[..., 0] = h.clone().amax(-1)
        values, order = h.sort(dim=1)
        picked = values.gather(1, order.flip(1)).to(self.up)
        return torch.cat([picked, picked.logsumexp(1, keepdim=True).expand(-1, 2, -1)], 1).cumsum(1)


class Spectral(nn.Module):
    """Complex weights, conjugates that are views."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer, self.weight = nn.Linear(8, 8), nn.Parameter(torch.randn(5, 5, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(self.layer(x)) @ self.weight, n=8)


def loss_of(out: Tensor) -> Tensor:
    return (out * torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view(out.shape)).sum()


@pytest.mark.parametrize(
    ("make", "dtype"),
    [(block, torch.float32), (block, torch.bfloat16), (InPlace, torch.float32), (InPlace, torch.bfloat16), (Spectral, torch.float32)],
)
def test_the_numbers_beside_are_those_of_the_model_in_float64(make: Callable[[torch.dtype], nn.Module], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = make(dtype)
    twin, x = copy.deepcopy(model).double(), torch.randn(3, 5, 16 if make is block else 8, dtype=dtype)
    twin.weight = nn.Parameter(model.weight.detach().to(torch.complex128)) if make is Spectral else None
    twin.up = torch.float64
    loss_of(twin(x.double())).backward()
    tape = OpTape(uncalled=set())
    shadows = Shadows(tape, 1 << 30, True)
    with shadows, OpProbe(tape, Ledger()):
        loss_of(model(x)).backward()
    assert not shadows.unasked and not shadows.off
    of_twin = dict(twin.named_parameters())
    for name, p in model.named_parameters():
        q = of_twin[name]
        assert p.grad is not None and q.grad is not None
        torch.testing.assert_close(shadows.of(p.grad), q.grad, rtol=1e-6, atol=1e-7 * float(q.grad.abs().max()), msg=name)
    assert max(shadows.errors.values()) > 0
