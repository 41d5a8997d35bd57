"""Rounding to formats: every code, every midpoint and their neighbors, against exact rational numbers and torch's own dtypes."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from numscope.precision.casting import native_cast
from numscope.precision.casting.cast import cast, empty_cells
from numscope.precision.casting.reference_cast import NUM_CELLS, decode, dtype_of, rounded
from numscope.precision.casting.scaling import How, Scaling
from numscope.records.errors import UsageError
from numscope.records.formats import FORMATS
from tests.precision import oracle

SMALL = oracle.SMALL
TORCH_HAS = [name for name in SMALL if FORMATS[name].torch_name is not None and name != "int8"]
CAN_NOT_SATURATE = [name for name in SMALL if FORMATS[name].has_nan]


@pytest.fixture(params=["reference", "chosen"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Torch's operations, and whatever the cast chooses by itself."""
    if request.param == "reference":
        monkeypatch.setattr(native_cast, "cast_matrix", lambda *args: None)
    yield request.param


def how(name: str, **settings: object) -> How:
    return How(FORMATS[name]).replace(**settings)


def one(x: Tensor, way: How, **settings: object) -> tuple[Tensor, Tensor, Tensor]:
    """Values, codes and counts of a cast at scale 1."""
    cells = empty_cells()
    made = cast(x, way, **{"scale": 1.0, "codes": True, "cells": cells, **settings})
    assert made.values is not None and made.codes is not None
    return made.values, made.codes, cells


def assert_same_bits(mine: np.ndarray, theirs: np.ndarray) -> None:
    """Equal, nan to nan, and -0 is not +0."""
    assert np.array_equal(mine, theirs, equal_nan=True)
    numbers = ~np.isnan(theirs)
    assert np.array_equal(np.signbit(mine[numbers]), np.signbit(theirs[numbers]))


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("name", SMALL)
def test_each_code_and_midpoint_and_their_neighbors_round_as_exact_numbers_do(backend: str, name: str, saturate: bool) -> None:
    if not saturate and name not in CAN_NOT_SATURATE:
        pytest.skip("has neither infinity nor nan")
    x = oracle.edges(name)
    if not FORMATS[name].has_nan:
        x = x[~np.isnan(x)]  # there nan is the scale's business
    expected = [oracle.cast_number(name, float(number), saturate) for number in x]
    values, codes, cells = one(torch.from_numpy(x), how(name, saturate=saturate))
    numbers = np.array([number for number, _ in expected], dtype=np.float32)
    assert_same_bits(values.numpy(), numbers)
    assert cells[0] == len(x)
    assert cells[1] == sum(number == 0 != original for (number, _), original in zip(expected, x.tolist(), strict=True))
    assert cells[2] == sum(over for _, over in expected)
    # the codes are those numbers' own
    assert codes.dtype == dtype_of(FORMATS[name])
    raw = codes.view(torch.uint8).tolist() if codes.dtype is not torch.uint8 else codes.tolist()
    wanted = oracle.codes_of_numbers(name, numbers)
    assert [code for code, want in zip(raw, wanted, strict=True) if want >= 0] == [want for want in wanted if want >= 0]
    assert_same_bits(decode(codes, FORMATS[name]).numpy(), numbers)


@pytest.mark.parametrize("name", TORCH_HAS)
def test_rounding_within_range_is_that_of_torchs_dtype_code_for_code(backend: str, name: str) -> None:
    patterns = np.random.default_rng(0).integers(0, 2**32, 5_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = torch.from_numpy(np.concatenate([oracle.edges(name), patterns]))
    if name == "e8m0fnu":
        x = x.abs()  # torch drops the sign there, here what is negative is nan
        # Between its two smallest numbers torch 2.13 rounds up whatever is above the first, nearest or not: float32's subnormals.
        x = x[~((x > 2.0**-127) & (x < 1.5 * 2.0**-127))]
    values, codes, _ = one(x, how(name, saturate=True))
    within = torch.tensor([not over for _, over in (oracle.cast_number(name, v) for v in x.tolist())])
    theirs = x[within].to(dtype_of(FORMATS[name]))
    assert_same_bits(values[within].numpy(), theirs.to(torch.float32).numpy())
    nan = torch.isnan(theirs.to(torch.float32))
    assert torch.equal(codes[within].view(torch.uint8)[~nan], theirs.view(torch.uint8)[~nan])


@pytest.mark.parametrize("name", SMALL)
def test_each_code_decodes_to_its_number_and_casts_to_itself(backend: str, name: str) -> None:
    form = FORMATS[name]
    codes = torch.arange(1 << form.bits, dtype=torch.uint8)
    if name == "int8":
        codes = codes[codes != 128]  # -128 is never made
    typed = codes if dtype_of(form) is torch.uint8 else codes.view(dtype_of(form))
    numbers = decode(typed, form)
    assert [float(oracle.value(name, code)) for code in codes.tolist()] == pytest.approx(numbers.tolist(), rel=0, abs=0, nan_ok=True)
    kept = torch.isfinite(numbers)
    _, again, cells = one(numbers[kept], how(name))
    assert torch.equal(again.view(torch.uint8), codes[kept])
    assert cells[1] == cells[2] == cells[3] == 0


@pytest.mark.parametrize("name", SMALL)
def test_a_float64_rounds_once(name: str) -> None:
    x = oracle.edges(name, np.float64)  # next to midpoints are numbers that float32 has not
    if not FORMATS[name].has_nan:
        x = x[~np.isnan(x)]
    values, _, cells = one(torch.from_numpy(x), how(name))
    expected = [oracle.cast_number(name, float(number)) for number in x]
    assert_same_bits(values.numpy(), np.array([number for number, _ in expected]))
    assert cells[2] == sum(over for _, over in expected)
    twice, _, _ = one(torch.from_numpy(x).to(torch.float32), how(name))
    assert not torch.equal(values.to(torch.float32).nan_to_num(), twice.nan_to_num()), "the points tell one rounding from two"


def float32_samples() -> np.ndarray:
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32)
    # ties of bf16 and tf32, and what lies next to them
    ties = np.concatenate([(patterns & ~np.uint32(mask)) | np.uint32(half) for mask, half in ((0xFFFF, 0x8000), (0x1FFF, 0x1000))])
    return np.concatenate([patterns, ties, ties + np.uint32(1), ties - np.uint32(1)]).view(np.float32)


@functools.cache
def upper_bits(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Finite numbers, and what they round to."""
    x = float32_samples()
    x = x[np.isfinite(x)]
    return x, np.array([getattr(oracle, name)(float(number)) for number in x], dtype=np.float32)


@pytest.mark.parametrize("name", ["bf16", "tf32"])
def test_bf16_and_tf32_are_a_float32s_upper_bits_rounded(backend: str, name: str) -> None:
    x, expected = upper_bits(name)
    over = np.isinf(expected)
    saturated = np.where(over, np.copysign(np.float32(FORMATS[name].max), x), expected)
    values, codes, cells = one(torch.from_numpy(x), how(name))
    assert_same_bits(values.numpy(), saturated)
    assert codes.dtype is (torch.bfloat16 if name == "bf16" else torch.float32)
    assert cells[2] == over.sum() > 0
    values, _, _ = one(torch.from_numpy(x), how(name, saturate=False))
    assert_same_bits(values.numpy(), expected)


def test_fp16_is_numpys(backend: str) -> None:
    codes = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    points = np.concatenate([codes, (codes[1:] + codes[:-1]) / 2, [65519.996, 65520.0, 65536.0]]).astype(np.float32)
    points = np.concatenate([points, np.nextafter(points, np.float32(math.inf)), np.nextafter(points, np.float32(0)), [np.inf, np.nan]])
    x = np.concatenate([points, -points])
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).astype(np.float32)
    values, codes_, cells = one(torch.from_numpy(x), how("fp16", saturate=False))
    assert_same_bits(values.numpy(), expected)
    assert codes_.dtype is torch.float16
    assert cells[2] == np.isinf(expected).sum()
    values, _, _ = one(torch.from_numpy(x), how("fp16"))
    assert_same_bits(values.numpy(), np.where(np.isinf(expected), np.copysign(np.float32(65504), x), expected))


def test_fp32_keeps_each_float32_and_rounds_a_float64_to_it(backend: str) -> None:
    x = float32_samples()
    x = x[~np.isinf(x)]
    values, codes, cells = one(torch.from_numpy(x), how("fp32"))
    assert_same_bits(values.numpy(), x)
    assert codes.dtype is torch.float32
    assert cells[2] == 0
    rng = np.random.default_rng(2)
    wide = np.concatenate([rng.standard_normal(10_000) * 10.0 ** rng.integers(-50, 37, 10_000), [3.5e38, -1e300]])
    with np.errstate(over="ignore"):
        expected = wide.astype(np.float32).astype(np.float64)
    values, _, cells = one(torch.from_numpy(wide), how("fp32", saturate=False))
    assert_same_bits(values.numpy(), expected)
    assert cells[2] == np.isinf(expected).sum() == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_all_float16_and_bfloat16_numbers_cast_as_their_float32(backend: str, name: str, dtype: torch.dtype) -> None:
    x = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    if not FORMATS[name].has_nan:
        x = x[~torch.isnan(x)]
    values, codes, cells = one(x, how(name), scale=0.37)
    wide_values, wide_codes, wide_cells = one(x.to(torch.float32), how(name), scale=0.37)
    assert values.dtype is dtype
    assert_same_bits(values.to(torch.float32).numpy(), wide_values.to(dtype).to(torch.float32).numpy())
    assert_same_bits(decode(codes, FORMATS[name]).numpy(), decode(wide_codes, FORMATS[name]).numpy())
    assert torch.equal(cells[:3], wide_cells[:3])
    assert cells[3].item() == pytest.approx(wide_cells[3].item(), rel=1e-12)


def test_nan_stays_nan_where_the_format_has_it_and_is_the_scales_where_not(backend: str) -> None:
    x = torch.tensor([1.0, math.nan, -2.0, 0.0])
    for name in SMALL:
        cells = empty_cells()
        made = cast(x, how(name), scale=1.0, codes=True, cells=cells)
        assert made.values is not None
        if FORMATS[name].has_nan:
            assert torch.isnan(made.values).tolist() == [False, True, name == "e8m0fnu", False]  # e8m0 has no negative numbers
            assert made.scale_inv == 1
        else:
            assert torch.isnan(made.values).all()
            assert torch.isnan(made.scale_inv)
        assert cells[1] == cells[2] == 0


def test_infinities_saturate_and_are_counted(backend: str) -> None:
    x = torch.tensor([math.inf, -math.inf, 1.0])
    for name in set(SMALL) - {"e8m0fnu"}:
        values, _, cells = one(x, how(name))
        assert values.tolist() == [FORMATS[name].max, -FORMATS[name].max, 1.0]
        assert cells[:3].tolist() == [3, 0, 2]
        assert cells[3] == 0  # their errors have no square


def test_not_saturating_gives_infinity_or_nan_and_counts_all_the_same(backend: str) -> None:
    x = torch.tensor([464.0, 465.0, -1e9, 61439.0, 61440.0])
    values, _, cells = one(x, how("e4m3fn", saturate=False))
    assert values[0] == 448 and torch.isnan(values[1:]).all()
    assert cells[2] == 4
    values, _, cells = one(x, how("e5m2", saturate=False))
    assert values.tolist() == [448.0, 448.0, -math.inf, 57344.0, math.inf]
    assert cells[2] == 2
    assert cells[3] == (464.0 - 448) ** 2 + (465.0 - 448) ** 2 + (61439.0 - 57344) ** 2


def test_counts_and_amax_merge_into_what_is_there(backend: str) -> None:
    x = torch.tensor([500.0, 2.0**-11, -0.0, 0.0, math.nan, 3.3])
    cells = torch.tensor([10.0, 20.0, 30.0, 40.0, 0.5, 7.0], dtype=torch.float64)
    amax = torch.tensor(600.0)
    made = cast(x, how("e4m3fn"), scale=2.0, cells=cells, amax=amax, values=False)
    assert made.values is None and made.codes is None
    q = float(np.float32(3.25))
    error = (500.0 - 224) ** 2 + (2.0**-11) ** 2 + (float(np.float32(3.3)) - q) ** 2
    assert cells[:3].tolist() == [16, 21, 31]
    assert cells[3].item() == pytest.approx(40 + error, rel=1e-12)
    assert cells[4:].tolist() == [2.0, 7.0]
    assert amax == 600
    cast(x * 2, how("e4m3fn"), scale=1.0, amax=amax)
    assert amax == 1000
    cast(torch.tensor([math.inf]), how("e4m3fn"), scale=1.0, amax=amax)
    assert amax == math.inf


def test_a_cast_has_no_gradient_and_leaves_its_operand(backend: str) -> None:
    x = torch.randn(4, 8, requires_grad=True)
    before = x.detach().clone()
    made = cast(x, how("e4m3fn"))
    assert made.values is not None and not made.values.requires_grad
    assert torch.equal(x, before)


def test_wrong_arguments_say_what_is_right() -> None:
    x, blocks = torch.ones(3), How(FORMATS["e4m3fn"], Scaling("block", (1, 32)))
    with pytest.raises(UsageError, match=r"^cast: x: got torch\.int64, expected a floating-point torch\.Tensor\. Convert it: "):
        cast(torch.arange(3), how("e4m3fn"))
    with pytest.raises(UsageError, match=r"^cast: x: got list, expected"):
        cast([1.0], how("e4m3fn"))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^cast: scale: got one for scaling by block, expected None"):
        cast(x, blocks, scale=1.0)
    with pytest.raises(UsageError, match=r"^cast: scale: got None for delayed scaling, expected the history's scale\.$"):
        cast(x, how("e4m3fn", delayed=True))
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(UsageError, match=r"^cast: scale: got .*, expected a positive finite number\.$"):
            cast(x, how("e4m3fn"), scale=wrong)
    with pytest.raises(UsageError, match=r"^cast: scale: got a tensor of shape \[3\], expected one number"):
        cast(x, how("e4m3fn"), scale=torch.ones(3))


def test_the_bits_oracle_is_right_about_itself() -> None:
    assert struct.pack(">f", oracle.bf16(1 + 2.0**-8)) == struct.pack(">f", 1.0)
    assert oracle.bf16(1 + 3 * 2.0**-8) == 1 + 2 * 2.0**-7
    assert oracle.tf32(1 + 2.0**-11) == 1.0


def test_rounding_of_a_format_of_ones_own() -> None:
    from numscope.records.formats import Format

    e3m0 = Format("e3m4", 8, 3, 4, 3, 15.5, has_inf=True, has_nan=True)
    x = torch.tensor([15.5, 15.75, 0.0078125, 0.0078126, 1.03125])
    assert rounded(x, e3m0).tolist() == [15.5, 16.0, 0.0, 0.015625, 1.0]


@pytest.mark.parametrize("scale", [1e-50, 1e39])
def test_scale_that_float32_does_not_have_is_refused(scale: float) -> None:
    with pytest.raises(UsageError, match=r"cast: scale: got 1e.*, expected a number from 2\^-126 to float32's maximum\."):
        cast(torch.ones(4), How("e4m3fn"), scale=scale)


def test_cells_of_another_dtype_are_not_written_beyond_their_end() -> None:
    x = torch.tensor([1.0, 1000.0, 2.0**-20])
    exact, other = empty_cells(), torch.zeros(NUM_CELLS + 6, dtype=torch.float32)
    cast(x, How("e4m3fn"), scale=1.0, cells=exact)
    cast(x, How("e4m3fn"), scale=1.0, cells=other[:NUM_CELLS])
    assert other.tolist() == [*exact.float().tolist(), *[0.0] * 6]
