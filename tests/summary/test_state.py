import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numscope.records.observation import COUNTS, FIELDS
from numscope.summary.state import DERIVED, EMPTY_ROW, ROW_BYTES, ROW_WIDTH, Groups, Summary, merge_rows
from tests.summary.oracle import EXACT, assert_same, summary_of

elements = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, -1e-39, 3.4e38, 1000.0, 1000.5]),
)
tensors = st.lists(elements, max_size=40).map(lambda xs: torch.tensor(xs, dtype=torch.float32))
summaries = tensors.map(summary_of)


def test_a_row_is_two_cache_lines_and_holds_every_field() -> None:
    assert (ROW_WIDTH, ROW_BYTES) == (16, 128)
    assert len(FIELDS) == ROW_WIDTH == len(EMPTY_ROW)
    assert all(name.startswith("num") for name in COUNTS)


@given(summaries)
def test_from_row_undoes_to_row(s: Summary) -> None:
    assert Summary.from_row(s.to_row()) == s


def test_the_empty_row_is_the_empty_summary() -> None:
    assert Summary.from_row(EMPTY_ROW) == Summary.empty()
    assert tuple(Summary.empty().to_row()) == EMPTY_ROW


@given(summaries)
def test_the_empty_summary_is_the_unit_of_merge(s: Summary) -> None:
    assert s.merge(Summary.empty()) == s == Summary.empty().merge(s)


@given(summaries, summaries)
def test_merge_is_commutative(a: Summary, b: Summary) -> None:
    assert a.merge(b) == b.merge(a)


@given(summaries, summaries, summaries)
def test_merge_is_associative(a: Summary, b: Summary, c: Summary) -> None:
    assert_same(a.merge(b).merge(c), a.merge(b.merge(c)))


@given(tensors, tensors)
def test_merge_is_the_summary_of_the_concatenation(a: torch.Tensor, b: torch.Tensor) -> None:
    assert_same(summary_of(a).merge(summary_of(b)), summary_of(torch.cat([a, b])))


def test_merge_keeps_nan_from_either_microbatch() -> None:
    clean, bad = summary_of(torch.ones(3)), summary_of(torch.tensor([1.0, math.nan, -math.inf]))
    for merged in (clean.merge(bad), bad.merge(clean)):
        assert (merged.num_nan, merged.num_neg_inf, merged.min, merged.max) == (1, 1, 1.0, 1.0)


def test_merge_of_different_means_has_the_variance_of_all() -> None:
    a, b = torch.full((10,), 5.0) + torch.arange(10), torch.full((30,), -7.0) - torch.arange(30)
    merged = summary_of(a).merge(summary_of(b))
    assert merged.var == pytest.approx(float(np.var(torch.cat([a, b]).numpy(), dtype=np.float64)), rel=1e-12)


def test_counts_stay_exact_above_2_to_the_24() -> None:
    s = Summary(numel=2**24 + 1, num_zero=2**24 + 1, min=0.0, max=0.0, abs_max=0.0)
    assert s.merge(s).numel == 2**25 + 2


@pytest.mark.parametrize("ratio", [0.0, 1.0, 1e3])
def test_derived_values_are_those_of_float64_numpy(ratio: float) -> None:
    x = torch.randn(50_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + ratio
    s, n = summary_of(x), x.numpy()
    c = n - n.mean()
    assert s.mean == pytest.approx(n.mean(), rel=1e-12)
    assert s.std == pytest.approx(n.std(), rel=1e-10)
    assert s.var == pytest.approx(n.var(), rel=1e-10)
    assert s.sample_std == pytest.approx(n.std(ddof=1), rel=1e-10)
    if ratio < 10:  # from raw powers: the error grows as the third and fourth power of the ratio
        assert s.skewness == pytest.approx((c**3).mean() / n.std() ** 3, rel=1e-9)
        assert s.kurtosis == pytest.approx((c**4).mean() / n.var() ** 2, rel=1e-9)
    assert s.rms == pytest.approx(math.sqrt((n**2).mean()), rel=1e-12)
    assert s.l1_norm == pytest.approx(np.abs(n).sum(), rel=1e-12)
    assert s.l2_norm == pytest.approx(np.linalg.norm(n), rel=1e-12)


def test_kurtosis_of_a_normal_distribution_is_3() -> None:
    s = summary_of(torch.randn(100_000, generator=torch.Generator().manual_seed(2)))
    assert s.kurtosis == pytest.approx(3.0, abs=6 * math.sqrt(24 / 100_000))  # six standard errors
    assert s.skewness == pytest.approx(0.0, abs=6 * math.sqrt(6 / 100_000))


def test_counts_and_percentages() -> None:
    s = summary_of(torch.tensor([0.0, 0.0, 1e-45, 4.0, math.nan, math.inf, -math.inf, -0.5]))
    assert (s.num_inf, s.num_nonfinite, s.num_finite) == (2, 3, 5)
    assert (s.zero_pct, s.subnormal_pct) == (25.0, 12.5)
    assert s.amax == 4.0
    assert summary_of(torch.tensor([0.5, -4.0, 0.0])).dynamic_range == 3.0


def test_what_nothing_finite_defines_is_absent() -> None:
    for s in (Summary.empty(), summary_of(torch.tensor([math.nan, math.inf]))):
        assert (s.min, s.max, s.abs_min, s.abs_max) == (None,) * 4
        assert (s.mean, s.std, s.kurtosis, s.dynamic_range, s.rms) == (None,) * 5


totals = st.one_of(st.floats(-1e6, 1e6), st.floats(allow_nan=False, allow_infinity=False), st.just(0.0))


def central(n: int, sums: list[float], power: int) -> Fraction:
    """A central moment from sums of powers, in exact arithmetic."""
    raw = [Fraction(1), *(Fraction(x) / n for x in sums)]
    return sum((math.comb(power, k) * raw[k] * (-raw[1]) ** (power - k) for k in range(power + 1)), Fraction(0))


@given(st.integers(1, 2**40), st.lists(totals, min_size=4, max_size=4))
def test_moments_are_the_exact_fractions_of_the_sums_but_for_what_cancels(n: int, sums: list[float]) -> None:
    named = dict(zip(("dev_sum", "dev_square_sum", "dev_cube_sum", "dev_fourth_sum"), sums, strict=True))
    s = Summary(n, min=-1.0, max=1.0, abs_min=1.0, abs_max=1.0, abs_sum=1.0, **named)
    var, third, fourth = (central(n, sums, power) for power in (2, 3, 4))
    try:
        expected = float(var)
    except OverflowError:
        expected = math.inf
    if s.var is None:  # hidden by the sums' rounding errors
        assert not math.isfinite(expected) or expected <= 1e-9 * sums[1] / n or expected < 1e-300
        assert s.skewness is None and s.kurtosis is None
        return
    first, square, cube, power = (Fraction(abs(x)) / n for x in sums)  # in fractions nothing overflows
    tiny = Fraction(1, 10**200)  # what underflow may take
    if any(x and not 1e-40 < abs(x) < 1e40 for x in sums):  # no tensor's: what it has may overflow or underflow, and raises nothing
        assert all(x is None or math.isfinite(x) for x in (s.var, s.skewness, s.kurtosis))
        return
    lost, found = Fraction(16) / 2**52, Fraction(s.var)  # of the magnitudes that are added
    assert abs(found - var) <= lost * square + tiny
    if s.kurtosis is not None:
        added = power + 4 * first * cube + 6 * first**2 * square + 3 * first**4
        exact = max(fourth, Fraction(0)) / var**2
        assert abs(Fraction(s.kurtosis) - exact) <= lost * (added + 4 * exact * var * square + exact * var**2) / var**2 + tiny
    if s.skewness is not None:  # its square, since a root is no fraction
        added = cube + 3 * first * square + 2 * first**3
        exact = third**2 / var**3
        away = abs(Fraction(s.skewness) ** 2 - exact)
        bound = 4 * lost * (abs(third) * added + exact * var**2 * square) + (lost * added) ** 2
        assert away <= bound / var**3 + lost * exact + tiny


@given(tensors.map(lambda x: x.to(torch.float64)))
def test_moments_of_a_tensor_are_those_of_its_elements(x: torch.Tensor) -> None:
    s = summary_of(x)
    finite = [Fraction(v) for v in x.tolist() if math.isfinite(v)]
    if len(set(finite)) > 1 and s.var and s.mean is not None and s.var > 1e-6 * s.mean**2:
        mean = sum(finite) / len(finite)
        second, fourth = (sum((v - mean) ** k for v in finite) / len(finite) for k in (2, 4))
        assert s.var == pytest.approx(float(second), rel=1e-8)
        assert s.kurtosis == pytest.approx(float(fourth / second**2), rel=1e-2)


def test_what_an_overflowed_sum_would_tell_is_absent() -> None:
    s = summary_of(torch.tensor([1e200, 3e200, 2e-3], dtype=torch.float64))
    assert (s.var, s.std, s.rms, s.l2_norm, s.skewness, s.kurtosis) == (None,) * 6
    assert s.mean == pytest.approx(4e200 / 3)
    assert s.l1_norm == 4e200
    s = summary_of(torch.tensor([1e80, -3e80], dtype=torch.float64))  # squares and cubes fit
    assert s.std == pytest.approx(2e80) and s.skewness == pytest.approx(0.0, abs=1e-6) and s.kurtosis is None


def test_a_constant_has_no_variance_and_no_shape() -> None:
    s = summary_of(torch.full((1000,), 0.1, dtype=torch.float64))
    assert (s.var, s.std, s.skewness, s.kurtosis) == (0.0, 0.0, None, None)


def test_moments_left_out_are_absent_not_zero() -> None:
    s = summary_of(torch.tensor([1.0, 2.0]))
    health = Summary.from_row(s.to_row()[:10] + [0.0] * 6)
    assert not health.has_moments and s.has_moments
    assert (health.mean, health.std, health.l1_norm, health.l2_norm, health.rms) == (None,) * 5
    zeros = summary_of(torch.zeros(4))
    assert (zeros.has_moments, zeros.mean, zeros.l2_norm) == (True, 0.0, 0.0)


def test_finalize_names_every_number() -> None:
    final = summary_of(torch.tensor([1.0, 3.0])).finalize()
    assert tuple(final) == FIELDS + DERIVED
    assert (final["mean"], final["std"], final["l1_norm"]) == (2.0, 1.0, 4.0)


def test_a_summary_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Summary.empty().numel = 3  # type: ignore[misc]


@given(summaries, summaries)
def test_merge_rows_agrees_with_merge(a: Summary, b: Summary) -> None:
    merged = Summary.from_row(merge_rows(a.to_row(), b.to_row()))
    assert all(getattr(merged, name) == getattr(a.merge(b), name) for name in EXACT)


def test_groups_name_what_a_pass_computes() -> None:
    assert Groups.HEALTH | Groups.MOMENTS | Groups.HIGHER == Groups.ALL == 7
