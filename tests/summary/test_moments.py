"""Moments where the mean is far above the deviation, or powers underflow: against exact fractions, right to the bound or left out."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numscope.summary import native, reference
from numscope.summary.state import Groups, Summary, merge_rows
from numscope.summary.statistics import STATISTICS
from tests.summary.test_kernel import BACKENDS, each_backend, observed

NAMES = ("mean", "std", "skewness", "kurtosis", "l2_norm")
TOLERANCE = 1e-3  # of what is not left out; for any numbers


def root(x: Fraction | int) -> float:
    try:
        return math.sqrt(x)
    except OverflowError:
        return math.inf


def exact(values: list[float]) -> dict[str, float]:
    """By fractions, each rounded at the end."""
    return _exact(tuple(values))


@cache  # fractions are slow, and each backend is compared with them
def _exact(values: tuple[float, ...]) -> dict[str, float]:
    numbers = [Fraction(x) for x in values]
    mean = sum(numbers) / len(numbers)
    second, third, fourth = (sum((x - mean) ** k for x in numbers) / len(numbers) for k in (2, 3, 4))
    sign = -1 if third < 0 else 1
    return {
        "mean": float(mean),
        "std": root(second),
        "skewness": sign * math.sqrt(third**2 / second**3) if second else 0.0,
        "kurtosis": float(fourth / second**2) if second else 0.0,
        "l2_norm": root(sum(x * x for x in numbers)),
    }


def assert_right(s: Summary, values: list[float], tolerance: float = 1e-10) -> None:
    for name, expected in exact(values).items():
        assert getattr(s, name) == pytest.approx(expected, rel=tolerance, abs=tolerance if name == "skewness" else 0.0), name


def far(n: int, mean: float, std: float, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    x = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (x.exp() * std + mean).to(dtype)  # skewed


@each_backend
@pytest.mark.parametrize(
    ("dtype", "mean", "std"),
    [
        (torch.float32, 1.0, 1e-4),  # a norm's weight just after its first steps
        (torch.float32, -1000.0, 0.01),
        (torch.bfloat16, 1.0, 0.02),
        (torch.float16, -5.0, 0.1),
        (torch.float8_e4m3fn, 240.0, 8.0),
        (torch.int32, 1e9, 3.0),
        (torch.float64, 1e6, 1e-2),
        (torch.float64, 1.0, 1e-8),
        (torch.float64, -1e8, 1.0),
        (torch.float64, 1e300, 1e292),
        (torch.float64, 0.0, 1.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("n", [7, 3000])
def test_moments_are_right_where_the_mean_is_far_above_the_deviation(
    backend: str, dtype: torch.dtype, mean: float, std: float, n: int
) -> None:
    x = far(n, mean, std, dtype)
    s = observed(backend, x)
    expected = exact(x.to(torch.float64).tolist())
    overflows = {"skewness", "kurtosis", "std", "l2_norm"} if mean > 1e200 else set()
    for name in NAMES:
        if name not in overflows:
            assert getattr(s, name) == pytest.approx(expected[name], rel=1e-10, abs=1e-10), name
    if overflows:
        assert s.std is None and s.kurtosis is None and s.l2_norm is None


@each_backend
@pytest.mark.parametrize("specials", [(math.nan,), (math.inf, -math.inf), (0.0,)])
def test_special_elements_among_far_ones_change_nothing_else(backend: str, specials: tuple[float, ...]) -> None:
    x = far(5000, 1e6, 1e-2)
    for k, special in enumerate(specials):
        x[k * 7 :: 1000] = special
    finite = x[x.isfinite()].tolist()
    s = observed(backend, x)
    assert_right(s, finite)
    assert s.abs_sum == pytest.approx(math.fsum(map(abs, finite)), rel=1e-14)
    for power, total in enumerate((s.sum, s.square_sum, s.cube_sum, s.fourth_sum), 1):
        assert total == pytest.approx(float(sum(Fraction(v) ** power for v in finite)), rel=1e-13)


@each_backend
def test_a_constant_has_no_deviation_at_all(backend: str) -> None:
    s = observed(backend, torch.full((70_000,), 0.1))
    assert (s.dev_sum, s.dev_square_sum, s.std, s.kurtosis) == (0.0, 0.0, 0.0, None)
    assert s.mean == pytest.approx(float(torch.tensor(0.1)), rel=0)


@pytest.mark.skipif(native.module is None, reason="the native kernel was not built")
@pytest.mark.parametrize("order", ["rows", "kernel"])
def test_ten_thousand_parts_merge_to_the_moments_of_the_whole(order: str) -> None:
    x = far(40_000, 1e8, 1.0) + torch.arange(40_000, dtype=torch.float64).div(10_000).floor()  # drifting: each part has its own center
    block = reference.empty_block(1)
    row = block[0].tolist()
    for part in x.split(4):
        if order == "kernel":
            native.module.observe(part.data_ptr(), 4, native.CODES[x.dtype], block.data_ptr(), Groups.ALL, 1)
        else:
            row = merge_rows(row, observed("reference" if part[0] < 0 else BACKENDS[-1], part).to_row())
    assert_right(Summary.from_row(block[0].tolist() if order == "kernel" else row), x.tolist())


deviations = st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=12)
parts_of = st.tuples(st.sampled_from([0.0, 1.0, -1e4, 1e8]), st.sampled_from([1e-8, 1e-3, 1.0, 1e3]), deviations)


@given(st.lists(parts_of, min_size=1, max_size=4), st.sampled_from(BACKENDS))
@settings(deadline=None, max_examples=150)
def test_in_any_order_and_grouping_a_merge_is_right_or_left_out(parts: list[tuple[float, float, list[float]]], backend: str) -> None:
    tensors = [torch.tensor([mean + mean * std * d if mean else std * d for d in devs], dtype=torch.float64) for mean, std, devs in parts]
    summaries = [observed(backend, x) for x in tensors]
    values = torch.cat(tensors).tolist()
    expected = exact(values)
    for some in list(permutations(summaries))[:6]:
        left, right = some[0], some[-1]
        for s in some[1:]:
            left = left.merge(s)
        for s in some[-2::-1]:
            right = s.merge(right)
        for merged in (left, right):
            for name in ("std", "skewness", "kurtosis", "l2_norm"):
                got = getattr(merged, name)
                if got is not None:
                    assert abs(got - expected[name]) <= TOLERANCE * max(abs(expected[name]), 1.0 if name == "skewness" else 0.0), name
                elif name == "l2_norm":
                    assert not expected[name] or expected[name] < 1e-140
            assert (merged.std is None) <= (len(values) > 1 and expected["std"] < 1e-9 * max(map(abs, values)))


@given(deviations, st.sampled_from([0.0, 1.0, 1e8]), deviations)
@settings(deadline=None, max_examples=60)
def test_a_row_that_observes_twice_merges_as_rows_do(one: list[float], mean: float, other: list[float]) -> None:
    tensors = [torch.tensor(devs, dtype=torch.float64) + mean for devs in (one, other)]
    for backend in BACKENDS:
        block = reference.empty_block(1)
        for x in tensors:
            if backend == "reference":
                reference.observe_into(x, block[0])
            else:
                assert native.module is not None and native.module.choose_isa(backend)
                native.module.observe(x.data_ptr(), x.numel(), native.CODES[x.dtype], block.data_ptr(), Groups.ALL, 1)
        both = observed(backend, tensors[0]).merge(observed(backend, tensors[1]))
        again = Summary.from_row(block[0].tolist())
        assert (again.numel, again.min, again.max) == (both.numel, both.min, both.max)
        for name in NAMES:
            a, b = getattr(again, name), getattr(both, name)
            assert a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)), (backend, name, a, b)


@each_backend
@pytest.mark.parametrize("scale", [1e-170, 1e-200, 1e-310])
def test_what_underflowed_squares_would_tell_is_left_out(backend: str, scale: float) -> None:
    s = observed(backend, torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * scale)
    assert (s.var, s.std, s.sample_std, s.skewness, s.kurtosis, s.rms, s.l2_norm) == (None,) * 7
    assert s.mean and s.l1_norm and s.amax


@each_backend
def test_underflowed_fourth_powers_leave_out_the_kurtosis_alone(backend: str) -> None:
    x = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e-80
    s, expected = observed(backend, x), exact(x.tolist())
    assert s.kurtosis is None
    assert (s.std, s.l2_norm) == (pytest.approx(expected["std"], rel=1e-12), pytest.approx(expected["l2_norm"], rel=1e-12))


def test_sums_about_zero_of_an_older_run_are_left_out_where_they_say_nothing() -> None:
    x = far(3000, 1e6, 1e-2)
    powers = [float(sum(Fraction(v) ** k for v in x.tolist())) for k in (1, 2, 3, 4)]
    s = Summary(3000, min=x.min().item(), max=x.max().item(), abs_min=1.0, abs_max=2e6, dev_sum=powers[0], abs_sum=powers[0],
                dev_square_sum=powers[1], dev_cube_sum=powers[2], dev_fourth_sum=powers[3])  # fmt: skip
    assert (s.std, s.skewness, s.kurtosis) == (None, None, None)
    assert s.mean == pytest.approx(x.mean().item(), rel=1e-14)
    assert all(STATISTICS[name].value(s, {}) is None for name in ("std", "kurtosis"))
