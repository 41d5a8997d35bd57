"""Emulated and real fp8 GEMMs: the same operands, results within the stated bound, and the log says who multiplies."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from numscope.precision import convert, states
from numscope.precision.gemm import products
from numscope.precision.gemm.recipes import CurrentScaling, DelayedScaling, Recipe, RowwiseScaling

UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}


DEVICES = ["cpu", *["cuda"] * torch.cuda.is_available()]


def layer(kind: str, dtype: torch.dtype, device: str = "cpu") -> nn.Module:
    torch.manual_seed(0)
    return (Conv1D(16, 32) if kind == "conv1d" else nn.Linear(32, 16)).to(device, dtype)


def run(module: nn.Module, dtype: torch.dtype, rows: int = 3) -> tuple[list[Tensor], dict[tuple[str, str], Tensor]]:
    """Output and gradients; each operand's numbers, from codes or values, as its GEMM took them."""
    seen: dict[tuple[str, str], Tensor] = {}
    (state,) = states(module).values()

    def see(gemm: str, operand: str, x: Tensor, made: object) -> None:
        codes, values = made.codes, made.values  # type: ignore[attr-defined]
        real = None if codes is None else codes.flatten(0, -2).float() * made.scale_inv  # type: ignore[attr-defined]
        seen[gemm, operand] = values.flatten(0, -2).float() if real is None else real

    state.observer = see
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 8, 32, generator=generator).to(module.weight.device, dtype).requires_grad_()
    y = module(x)
    y.backward(torch.randn(y.shape, generator=generator).to(y.device, dtype))
    weight = module.weight.grad.t() if isinstance(module, Conv1D) else module.weight.grad
    return [y.detach().flatten(0, -2) - module.bias.detach(), x.grad.flatten(0, -2), weight], seen


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["linear", "conv1d"])
@pytest.mark.parametrize("recipe", [DelayedScaling(), CurrentScaling(), RowwiseScaling(), CurrentScaling("e5m2")], ids=repr)
def test_both_backends_take_the_same_operands_and_differ_within_the_bound(
    recipe: Recipe, kind: str, dtype: torch.dtype, device: str
) -> None:
    rows = 3 if device == "cpu" else 4  # cuBLAS sums multiples of 16 products
    emulated, operands = run(convert(layer(kind, dtype, device), recipe, backend="emulate"), dtype, rows)
    real, same = run(convert(layer(kind, dtype, device), recipe, backend="scaled_mm"), dtype, rows)
    assert operands.keys() == same.keys() and len(same) == 6
    for key in same:  # values are codes × scale_inv, rounded once to the dtype
        assert torch.equal(same[key].to(dtype), operands[key].to(dtype)), key
    for gemm, a, b in zip(("fprop", "dgrad", "wgrad"), emulated, real, strict=True):
        left, right = (operands[key].abs().max() for key in operands if key[0] == gemm)
        terms = {"fprop": 32, "dgrad": 16, "wgrad": 8 * rows}[gemm]
        kept = 2.0**-23 if device == "cpu" else 2.0**-20  # tensor cores keep fewer bits of partial sums
        bound = terms * left * right * (terms * kept + 3 * UNIT[dtype])
        if gemm == "fprop":
            bound = bound + UNIT[dtype] * 4 * b.abs().max()  # the bias that was taken off again
        assert (a.double() - b.double()).abs().max() <= bound
        assert b.abs().max() > (100 if device == "cpu" else 10) * bound or dtype is torch.bfloat16  # the bound says something


def test_real_gemms_really_run(monkeypatch: pytest.MonkeyPatch) -> None:
    dtypes = []
    multiply = torch._scaled_mm
    monkeypatch.setattr(torch, "_scaled_mm", lambda a, b, **kw: (dtypes.append((a.dtype, b.dtype)), multiply(a, b, **kw))[1])
    run(convert(layer("linear", torch.float32), "delayed", backend="scaled_mm"), torch.float32)
    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    assert dtypes == [(e4m3, e4m3), (e5m2, e4m3), (e5m2, e4m3)]


@pytest.mark.parametrize(
    ("recipe", "dtype", "reason"),
    [
        ("mxfp8", torch.float32, "torch._scaled_mm is not used for blocks"),
        ("nvfp4", torch.float32, "torch._scaled_mm does not take e2m1fn"),
        ("current", torch.float64, "torch._scaled_mm does not give float64"),
    ],
)
def test_what_scaled_mm_cannot_is_emulated_bitwise_and_said_once(
    recipe: str, dtype: torch.dtype, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    results = []
    with caplog.at_level(logging.INFO, "numscope"):
        for backend in ("emulate", "scaled_mm"):
            net = convert(nn.Sequential(layer("linear", dtype)), recipe, backend=backend)  # type: ignore[arg-type]
            x = torch.randn(8, 32, dtype=dtype, generator=torch.Generator().manual_seed(0))
            results.append([net(x) for _ in range(3)][-1])
    assert torch.equal(*results)
    assert [r.getMessage() for r in caplog.records] == [f"0: fprop is emulated: {reason}."]


def test_auto_emulates_on_the_cpu_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    with caplog.at_level(logging.INFO, "numscope"):
        convert(net, "current")(torch.randn(2, 8)).sum().backward()
    assert [r.getMessage() for r in caplog.records] == ["0, and layers converted with it: fp8 GEMMs are emulated, as the CPU has none."]


@pytest.mark.parametrize(
    ("capability", "expected"), [((8, 0), False), ((8, 6), False), ((8, 9), True), ((9, 0), True), ((10, 0), True), ((12, 0), True)]
)
def test_fp8_gemms_are_there_from_capability_8_9(capability: tuple[int, int], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    products.has_fp8_gemm.cache_clear()
    assert products.has_fp8_gemm(torch.device("cuda", 0)) is expected
    products.has_fp8_gemm.cache_clear()


@pytest.mark.parametrize(
    ("gemm", "a", "b", "is_transposed", "said"),
    [
        ("fprop", (8, 32), (16, 32), False, ""),
        ("fprop", (8, 20), (16, 20), False, "it sums 20 products for 16 columns"),
        ("fprop", (8, 32), (12, 32), False, "it sums 32 products for 12 columns"),
        ("fprop", (8, 32), (32, 12), True, "it sums 32 products for 12 columns"),
        ("dgrad", (8, 12), (12, 32), False, "it sums 12 products for 32 columns"),
        ("dgrad", (8, 16), (20, 16), True, "it sums 16 products for 20 columns"),
        ("wgrad", (8, 16), (8, 32), False, "it sums 8 products for 32 columns"),
        ("wgrad", (16, 12), (16, 32), False, ""),
        ("wgrad", (16, 12), (16, 32), True, "it sums 16 products for 12 columns"),
        ("fprop", (0, 32), (16, 32), False, "an operand is empty"),
    ],
)
def test_shapes_that_a_device_cannot_take_are_known(
    gemm: str, a: tuple[int, int], b: tuple[int, int], is_transposed: bool, said: str
) -> None:
    net = convert(nn.Linear(4, 4), "delayed")
    (state,) = states(net).values()
    state.is_transposed = is_transposed
    how = state.plan["fprop", "weight"]
    reason = products._obstacle(state, gemm, how, how, torch.empty(a, device="meta"), torch.empty(b, device="meta"))
    assert reason.startswith(said) and bool(reason) is bool(said)


def test_formats_and_rows_that_a_device_cannot_take_are_known() -> None:
    net = convert(nn.Linear(4, 4), CurrentScaling("e5m2"))
    (state,) = states(net).values()
    how, row = state.plan["fprop", "weight"], RowwiseScaling().plan()["fprop", "weight"]
    a, b = torch.empty(8, 32, device="meta"), torch.empty(16, 32, device="meta")
    assert products._obstacle(state, "fprop", how, how, a, b) == "torch._scaled_mm does not multiply e5m2 with e5m2"
    assert products._obstacle(state, "fprop", row, row, a, b) == "torch._scaled_mm gives only bfloat16 with one scale per row"
    assert products._obstacle(state, "fprop", row, row, a.bfloat16(), b) == ""
    assert products._obstacle(state, "fprop", row, how, a, b) == "its operands are scaled in different ways"
    assert products._obstacle(state, "fprop", row, None, a, b) == "one of its operands is in high precision"
