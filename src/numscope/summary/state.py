"""A tensor's summary: numbers in a fixed layout that merge exactly.

A *row* is ``ROW_WIDTH`` float64 numbers in the order of ``FIELDS``, as filled by kernels and stored in ledgers. Counts are exact in float64
up to 2^53 elements. A ``Summary`` is one row in Python numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import lru_cache

from numscope.records.observation import COUNTS, FIELDS

ROW_WIDTH = 16  # one spare: a row is two cache lines
ROW_BYTES = ROW_WIDTH * 8
EMPTY_ROW: tuple[float, ...] = (0.0,) * 6 + (math.inf, -math.inf, math.inf, -math.inf) + (0.0,) * 6


class Groups(IntFlag):
    """Fields that a pass computes; fields of other groups keep their unit value.

    Health is always computed: sums are over the finite elements, which a pass must know.
    """

    HEALTH = 1  # counts and extrema
    MOMENTS = 2  # sums of powers
    ALL = 3


DERIVED = (
    "num_finite", "num_nonfinite", "num_inf", "zero_pct", "subnormal_pct", "amax", "dynamic_range",
    "mean", "var", "std", "sample_std", "skewness", "kurtosis", "rms", "l1_norm", "l2_norm",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Summary:
    """One tensor's numbers, or those of several tensors merged.

    Counts are over all elements, all other fields over the finite ones; a complex number is two elements, its real and imaginary part.
    Extrema are None without finite elements (``abs_min``, the smallest non-zero magnitude, without non-zero ones). ``num_subnormal``
    counts subnormals of the tensor's own dtype. Sums are accumulated in float64; those of a float64 tensor can overflow (fourth powers
    from 1e77 on), and what needs an overflowed sum is None.

    Derived from counts and extrema are ``num_finite``, ``num_nonfinite``, ``num_inf``, ``zero_pct``, ``subnormal_pct``, ``amax`` and
    ``dynamic_range``. Derived from sums are ``mean``, ``var``, ``std``, ``sample_std``, ``skewness``, ``kurtosis``, ``rms``, ``l1_norm``
    and ``l2_norm``, which are None if the pass computed no sums (``has_moments`` is False) or if they are undefined (the mean of nothing,
    the skewness of a constant).

    Laws: ``summarize(cat(a, b)) == summarize(a).merge(summarize(b))``; ``merge`` is associative and commutative with the unit
    ``Summary.empty()``: exactly for counts and extrema, up to float64 rounding for sums.
    """

    numel: int = 0
    num_nan: int = 0
    num_pos_inf: int = 0
    num_neg_inf: int = 0
    num_zero: int = 0
    num_subnormal: int = 0
    min: float | None = None
    max: float | None = None
    abs_min: float | None = None
    abs_max: float | None = None
    sum: float = 0.0
    abs_sum: float = 0.0
    square_sum: float = 0.0
    cube_sum: float = 0.0
    fourth_sum: float = 0.0

    @classmethod
    def empty(cls) -> Summary:
        """The summary of no elements, the unit of ``merge``."""
        return cls()

    @classmethod
    def from_row(cls, row: Sequence[float]) -> Summary:
        """The summary in a row.

        Args:
            row: at least ``len(FIELDS)`` numbers in the order of ``FIELDS``, such as ``block[i].tolist()``.
        """
        extrema = (None if math.isinf(x) else x for x in row[6:10])  # a finite element's extremum is finite
        return cls(*(int(x) for x in row[: len(COUNTS)]), *extrema, *row[10:15])

    def to_row(self) -> list[float]:
        """The row: ``from_row(s.to_row()) == s``."""
        present = (self.min, self.max, self.abs_min, self.abs_max)
        extrema = (empty if x is None else x for x, empty in zip(present, EMPTY_ROW[6:10], strict=True))
        counts = (self.numel, self.num_nan, self.num_pos_inf, self.num_neg_inf, self.num_zero, self.num_subnormal)
        sums = (self.sum, self.abs_sum, self.square_sum, self.cube_sum, self.fourth_sum)
        return [*map(float, counts), *extrema, *sums, 0.0]

    def merge(self, other: Summary) -> Summary:
        """The summary of both tensors' elements together. Both must have the same groups."""
        return Summary.from_row(merge_rows(self.to_row(), other.to_row()))

    # ---- from counts and extrema

    @property
    def num_inf(self) -> int:
        return self.num_pos_inf + self.num_neg_inf

    @property
    def num_nonfinite(self) -> int:
        return self.num_nan + self.num_pos_inf + self.num_neg_inf

    @property
    def num_finite(self) -> int:
        return self.numel - self.num_nonfinite

    @property
    def zero_pct(self) -> float | None:
        """Zeros per hundred elements; None without elements."""
        return 100.0 * self.num_zero / self.numel if self.numel else None

    @property
    def subnormal_pct(self) -> float | None:
        """Subnormals per hundred elements; None without elements."""
        return 100.0 * self.num_subnormal / self.numel if self.numel else None

    @property
    def amax(self) -> float | None:
        """The largest finite magnitude."""
        return self.abs_max

    @property
    def dynamic_range(self) -> float | None:
        """Powers of two between the smallest non-zero magnitude and the largest."""
        return math.log2(self.abs_max) - math.log2(self.abs_min) if self.abs_max is not None and self.abs_min is not None else None

    # ---- from sums

    @property
    def has_moments(self) -> bool:
        """Whether sums were computed: with a non-zero element, the sum of magnitudes is not zero."""
        return self.abs_min is None or self.abs_sum != 0.0

    def _mean_of(self, total: float) -> float | None:
        return total / self.num_finite if self.num_finite and self.has_moments and math.isfinite(total) else None

    @property
    def mean(self) -> float | None:
        return self._mean_of(self.sum)

    @property
    def var(self) -> float | None:
        """Population variance (NumPy's ``ddof=0``), exact for the stored sums, which alone have rounding errors.

        Its relative error is some 1e-16 (1 + (mean / std)^2): 1e-10 if the mean is a thousand times the std.
        """
        if not self.num_finite or not self.has_moments:
            return None
        return 0.0 if self.min == self.max else _variance(self.num_finite, self.sum, self.square_sum)

    @property
    def std(self) -> float | None:
        """Population standard deviation (NumPy's ``ddof=0``)."""
        var = self.var
        return None if var is None else math.sqrt(var)

    @property
    def sample_std(self) -> float | None:
        """Standard deviation with Bessel's correction (``torch.std``'s default); None for fewer than two elements."""
        var, n = self.var, self.num_finite
        return None if var is None or n < 2 else math.sqrt(var * n / (n - 1))

    @property
    def skewness(self) -> float | None:
        """Third standardized moment; None for a constant."""
        return _skewness(self.num_finite, self.sum, self.square_sum, self.cube_sum) if self.var else None

    @property
    def kurtosis(self) -> float | None:
        """Fourth standardized moment, 3 for a normal distribution; None for a constant."""
        return _kurtosis(self.num_finite, self.sum, self.square_sum, self.cube_sum, self.fourth_sum) if self.var else None

    @property
    def rms(self) -> float | None:
        """Root mean square."""
        square = self._mean_of(self.square_sum)
        return None if square is None else math.sqrt(square)

    @property
    def l1_norm(self) -> float | None:
        return self.abs_sum if self.has_moments and math.isfinite(self.abs_sum) else None

    @property
    def l2_norm(self) -> float | None:
        return math.sqrt(self.square_sum) if self.has_moments and math.isfinite(self.square_sum) else None

    def finalize(self) -> dict[str, int | float | None]:
        """All stored and derived numbers by name, in the order of ``FIELDS`` and ``DERIVED``."""
        return {name: getattr(self, name) for name in (*FIELDS, *DERIVED)}


# ---- Central moments from sums of powers
#
# With the sums as integers a, b, c, d over 2^e, 2^2e, 2^3e, 2^4e, everything is integer arithmetic with one final division, which Python
# rounds once. In float64, differences would lose digits in proportion to mean / std. Each takes about 3 µs; the cache serves the statistics
# of one summary.

_RECENT = 8


def _over_powers_of_two(*sums: float) -> tuple[int, list[int]]:
    """The exponent e, and for each sum the integer that equals it when divided by 2^e, 2^2e, 2^3e, ..."""
    ratios = [total.as_integer_ratio() for total in sums]
    shifts = [denominator.bit_length() - 1 for _, denominator in ratios]
    e = max(-(-shift // k) for k, shift in enumerate(shifts, 1))
    return e, [numerator << (k * e - shift) for k, ((numerator, _), shift) in enumerate(zip(ratios, shifts, strict=True), 1)]


def _ratio(numerator: int, denominator: int) -> float | None:
    try:
        return numerator / denominator
    except OverflowError:  # beyond float64, from sums that no tensor has
        return None


@lru_cache(_RECENT)
def _variance(n: int, s1: float, s2: float) -> float | None:
    if not (math.isfinite(s1) and math.isfinite(s2)):
        return None
    (a, ones), (b, twos) = s1.as_integer_ratio(), s2.as_integer_ratio()  # like _over_powers_of_two in half the time, since std is used most
    shift1, shift2 = ones.bit_length() - 1, twos.bit_length() - 1
    e = max(shift1, (shift2 + 1) // 2)
    a, b = a << (e - shift1), b << (2 * e - shift2)
    spread = n * b - a * a  # n^2 times the variance; below 0 only by the sums' rounding errors
    return _ratio(spread, n * n << 2 * e) if spread > 0 else 0.0


@lru_cache(_RECENT)
def _skewness(n: int, s1: float, s2: float, s3: float) -> float | None:
    if not math.isfinite(s3):
        return None
    _, (a, b, c) = _over_powers_of_two(s1, s2, s3)
    spread = n * b - a * a
    third = n * n * c - 3 * n * a * b + 2 * a**3  # n^3 times the third moment; powers of n and of two cancel in the ratio
    square = _ratio(third * third, spread**3)
    if square is None:
        return None
    return -math.sqrt(square) if third < 0 else math.sqrt(square)


@lru_cache(_RECENT)
def _kurtosis(n: int, s1: float, s2: float, s3: float, s4: float) -> float | None:
    if not (math.isfinite(s3) and math.isfinite(s4)):
        return None
    _, (a, b, c, d) = _over_powers_of_two(s1, s2, s3, s4)
    spread = n * b - a * a
    square = a * a
    fourth = n**3 * d - 4 * n * n * a * c + 6 * n * square * b - 3 * square * square  # n^4 times the fourth moment
    return _ratio(max(fourth, 0), spread * spread)


def merge_rows(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Two rows merged: counts and sums add up, extrema combine."""
    merged = [x + y for x, y in zip(a, b, strict=True)]
    merged[6:10] = min(a[6], b[6]), max(a[7], b[7]), min(a[8], b[8]), max(a[9], b[9])
    return merged
