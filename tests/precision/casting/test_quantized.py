"""The public face of quantization: laws of rounding to nearest, stochastic rounding, and what comes back."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import numscope.precision
from numscope.lazy import homes_of
from numscope.precision import Scaling, quantize, quantize_current
from numscope.records.errors import UsageError
from numscope.records.formats import FORMATS, format_of
from tests.precision import oracle

SIGNED = [name for name, form in FORMATS.items() if form.signed]
names = st.sampled_from(SIGNED)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
some = st.lists(numbers, min_size=1, max_size=20).map(torch.tensor)


def back(x: Tensor, name: str, scale: float = 1.0) -> Tensor:
    return quantize(x, name, scale).dequantize()


# ---- laws


@given(names, some)
def test_rounding_never_turns_an_order_around(name: str, x: Tensor) -> None:
    x = x.sort().values
    assert (back(x, name).diff() >= 0).all()


@given(names, some)
def test_what_is_rounded_stays(name: str, x: Tensor) -> None:
    once = quantize(x, name)
    twice = quantize(once.dequantize(), name)
    assert torch.equal(twice.dequantize(), once.dequantize())
    assert torch.equal(twice.data.view(torch.uint8), once.data.view(torch.uint8))
    assert twice.num_overflow == twice.num_underflow == 0


@given(names, some)
def test_a_number_and_its_opposite_round_to_opposites(name: str, x: Tensor) -> None:
    assert torch.equal(back(-x, name), -back(x, name))


@given(names, some)
def test_error_is_at_most_half_the_distance_of_neighbors(name: str, x: Tensor) -> None:
    form = format_of(name)
    y = back(x, name).to(torch.float64)
    x = x.to(torch.float64)
    within = x.abs() <= form.max
    ulp = torch.exp2(torch.floor(torch.log2(x.abs().clamp(min=2.0**form.min_exponent))) - form.fraction_bits)
    assert ((y - x).abs()[within] <= ulp[within] / 2).all()
    assert (y.abs()[~within] == form.max).all()


@given(names, some, st.integers(-20, 20))
def test_a_power_of_two_that_scale_and_numbers_share_changes_no_code(name: str, x: Tensor, power: int) -> None:
    x = torch.where((x.abs() > 2.0**-100) & (x.abs() < 2.0**100), x, 0.0)  # within what float32 can shift without loss
    here, there = quantize(x, name), quantize(x * 2.0**power, name, 2.0**-power)
    assert torch.equal(here.data.view(torch.uint8), there.data.view(torch.uint8))
    assert torch.equal(here.dequantize().to(torch.float64) * 2.0**power, there.dequantize().to(torch.float64)) or name in (
        "bf16",
        "tf32",
        "fp32",
    )


@given(names, st.lists(numbers, min_size=1, max_size=6), st.sampled_from(["tensor", "row", "block"]))
def test_scaled_by_its_own_amax_little_is_lost_and_nothing_overflows(name: str, x: list[float], kind: str) -> None:
    form = format_of(name)
    scaling = Scaling(kind, (1, 4) if kind == "block" else (1, 1))  # type: ignore[arg-type]
    quantized = quantize_current(torch.tensor([x, x[::-1]]), form, scaling)
    # amax × (max / amax) is one rounding from max, and half the distance to what would overflow is farther
    assert quantized.num_overflow == 0 or name in ("fp32",)
    assert (quantized.scale_inv > 0).all() and torch.isfinite(quantized.scale_inv).all()


# ---- stochastic rounding


def stochastic(x: Tensor, name: str, seed: int = 0, **settings: object) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return quantize(x, name, rounding="stochastic", generator=generator, **settings).dequantize()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", oracle.SMALL)
def test_stochastic_rounding_goes_to_the_two_neighbors_only(name: str) -> None:
    table = torch.tensor([float(number) for number, _ in oracle.magnitudes(name)], dtype=torch.float64)
    low, high = table[:-1], table[1:]
    for part in (0.001, 0.25, 0.5, 0.9, 0.999):
        x = (low + (high - low) * part).to(torch.float32).repeat(40)
        y = stochastic(x, name).to(torch.float64)
        down, up = y == low.repeat(40), y == high.repeat(40)
        assert (down | up).all()
        # of 40 tries at a half none goes one way with a chance of 2^-40; 127 intervals at most
        if part == 0.5:
            assert down.view(40, -1).any(0).all() and up.view(40, -1).any(0).all()


@pytest.mark.parametrize("name", FORMATS)
def test_stochastic_rounding_never_moves_what_the_format_has(name: str) -> None:
    if name in oracle.SMALL:
        x = torch.tensor([float(number) for number, _ in oracle.magnitudes(name)])
    else:
        x = quantize(torch.randn(5000) * 10.0 ** torch.empty(5000).uniform_(-30, 4), name).dequantize()
    x = torch.cat([x, -x]) if FORMATS[name].signed else x
    for seed in range(20):
        assert torch.equal(stochastic(x, name, seed), x)


@pytest.mark.parametrize("name", [*oracle.SMALL, "fp16", "bf16", "tf32"])
@pytest.mark.parametrize("sign", [1, -1])
def test_stochastic_rounding_is_unbiased(name: str, sign: int) -> None:
    form = FORMATS[name]
    if sign < 0 and not form.signed:
        pytest.skip("has no negative numbers")
    count = 40_000
    # between normal numbers, between subnormal ones, and below the smallest
    for low, ulp in ((1.0, 2.0**-form.fraction_bits), (form.min_subnormal, form.min_subnormal), (0.0, form.min_subnormal)):
        if low == 0 and not form.has_zero:
            continue
        if form.exponent_bits == 0:
            ulp = 1.0
        for part in (0.1, 0.5, 0.77):
            x = sign * (low + ulp * part)
            y = stochastic(torch.full((count,), x, dtype=torch.float64), name, seed=7)
            sigma = ulp * math.sqrt(part * (1 - part) / count)
            assert abs(y.mean().item() - x) < 5 * sigma, (low, part)  # once in two million, and the seed is fixed


def test_stochastic_rounding_is_what_the_generator_says() -> None:
    x = torch.randn(1000)
    first = stochastic(x, "e4m3", seed=1)
    assert torch.equal(stochastic(x, "e4m3", seed=1), first)
    assert not torch.equal(stochastic(x, "e4m3", seed=2), first)
    assert torch.equal(stochastic(-x, "e4m3", seed=1), -first)
    state = torch.get_rng_state()
    quantize(x, "e4m3")
    assert torch.equal(torch.get_rng_state(), state), "rounding to nearest draws nothing"


def test_stochastic_rounding_saturates_above_the_maximum() -> None:
    x = torch.full((1000,), 460.0)
    quantized = quantize(x, "e4m3", rounding="stochastic", generator=torch.Generator().manual_seed(0))
    assert (quantized.dequantize() == 448).all()
    assert 250 < quantized.num_overflow < 500  # 12 / 32 of them would have gone up
    y = stochastic(torch.tensor([math.inf, -math.inf, 1e9, math.nan]), "e5m2")
    assert y[:3].tolist() == [57344, -57344, 57344] and torch.isnan(y[3])
    y = stochastic(torch.tensor([math.inf, 1e9]), "e5m2", saturate=False)
    assert y.tolist() == [math.inf, math.inf]


# ---- what comes back


def test_quantized_has_codes_scale_and_counts() -> None:
    x = torch.tensor([[1.0, -3.3, 500.0], [2.0**-11, 0.0, -0.0]])
    quantized = quantize(x, "e4m3", 2.0)
    assert quantized.data.dtype is torch.float8_e4m3fn
    assert quantized.data.shape == x.shape
    assert quantized.scale_inv == 0.5
    assert quantized.format is FORMATS["e4m3fn"]
    assert (quantized.num_overflow, quantized.num_underflow) == (1, 1)
    assert quantized.dequantize().tolist() == [[1.0, -3.25, 224.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2), ("e4m3fnuz", torch.float8_e4m3fnuz),
        ("e5m2fnuz", torch.float8_e5m2fnuz), ("e8m0", torch.float8_e8m0fnu), ("fp6_e2m3", torch.uint8), ("fp6_e3m2", torch.uint8),
        ("fp4", torch.uint8), ("int8", torch.int8), ("fp16", torch.float16), ("bf16", torch.bfloat16), ("tf32", torch.float32),
        ("fp32", torch.float32),
    ],
)  # fmt: skip
def test_codes_have_the_formats_own_dtype(name: str, dtype: torch.dtype) -> None:
    quantized = quantize(torch.tensor([1.0, 3.0]), name)
    assert quantized.data.dtype is dtype
    assert quantized.dequantize().tolist() == [1.0, 4.0 if name == "e8m0" else 3.0]


def test_overflow_is_ours_whatever_torchs_version_does() -> None:
    x = torch.tensor([1e6, math.inf, -1e6, math.nan])
    saturated = quantize(x, "e4m3")
    assert saturated.dequantize()[:3].tolist() == [448, 448, -448] and torch.isnan(saturated.dequantize()[3])
    assert saturated.num_overflow == 3
    assert torch.isnan(quantize(x, "e4m3", saturate=False).dequantize()).all()


def test_wrong_arguments_name_what_is_right() -> None:
    x = torch.ones(2)
    with pytest.raises(UsageError, match=r"^quantize: format: got 'e4m4', expected one of .*Did you mean 'e4m3'\?$"):
        quantize(x, "e4m4")
    with pytest.raises(UsageError, match=r"^rounding: got 'even'"):
        quantize(x, "e4m3", rounding="even")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^saturate: got False for e2m1fn"):
        quantize(x, "fp4", saturate=False)


# ---- the package's table of names


def test_precisions_names_are_those_of_the_stub() -> None:
    home = Path(numscope.precision.__file__)
    typed = homes_of(str(home))
    assert numscope.precision.__all__ == dir(numscope.precision) == sorted(typed)
    for name, module in typed.items():
        assert getattr(numscope.precision, name) is getattr(__import__(module, fromlist=[name]), name)
    files = {path.stem for path in home.parent.glob("*.py")} | {path.name for path in home.parent.iterdir() if path.is_dir()}
    assert not set(typed) & files, "a public name that is a file's would turn into the module once that file is imported"


def test_unknown_name_of_precision_suggests_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"^module 'numscope\.precision' has no attribute 'quantise'\. Did you mean 'quantize'\?$"):
        _ = numscope.precision.quantise
