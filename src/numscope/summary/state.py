"""A tensor's summary: numbers in a fixed layout that merge.

A *row* is ``ROW_WIDTH`` float64 numbers in the order of ``FIELDS``, as filled by kernels and stored in ledgers. Counts are exact in float64
up to 2^53 elements. A ``Summary`` is one row in Python numbers.

Sums are about a *center*, one of the elements or 0, which the row keeps. Sums of raw powers lose a variance's digits where the mean is far
above the deviation, and a fourth moment's twice as fast; about an element nothing cancels. Rows of different centers merge about the center
of the one with more elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

from numscope.records.markup import BAD, QUIET, element, table
from numscope.records.observation import FIELDS

ROW_WIDTH = 16  # a row is two cache lines
ROW_BYTES = ROW_WIDTH * 8
EMPTY_ROW: tuple[float, ...] = (0.0,) * 6 + (math.inf, -math.inf, math.inf, -math.inf) + (0.0,) * 6

# A device tensor as the kernel reads it: address, its row's address, number of elements, code of the dtype; for a tensor with gaps also
# the length of a row and both steps, in elements.
KernelInput = tuple[int, ...]


class Groups(IntFlag):
    """Fields that a pass computes.

    Health is always computed: sums are over the finite elements, which a pass must know. Without moments their fields keep their unit
    value; moments without the higher ones leave nan in these.
    """

    HEALTH = 1  # counts and extrema
    MOMENTS = 2  # sums of x, of its magnitude and square
    HIGHER = 4  # with moments: sums of third and fourth powers
    ALL = 7


DERIVED = (
    "num_finite", "num_nonfinite", "num_inf", "zero_pct", "subnormal_pct", "amax", "dynamic_range",
    "mean", "var", "std", "sample_std", "skewness", "kurtosis", "rms", "l1_norm", "l2_norm",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Summary:
    """One tensor's numbers, or those of several tensors merged.

    Counts are over all elements, all other fields over the finite ones; a complex number is two elements, its real and imaginary part.
    Extrema are None without finite elements (``abs_min``, the smallest non-zero magnitude, without non-zero ones). ``num_subnormal``
    counts subnormals of the tensor's own dtype. ``dev_sum`` to ``dev_fourth_sum`` are the sums of the first four powers of x - ``center``;
    ``sum``, ``square_sum``, ``cube_sum`` and ``fourth_sum``, those of x, follow from them. Sums are accumulated in float64; those of a
    float64 tensor can overflow (fourth powers from 1e77 on) and underflow (squares below 1e-154), and what needs such a sum is None.

    Derived from counts and extrema are ``num_finite``, ``num_nonfinite``, ``num_inf``, ``zero_pct``, ``subnormal_pct``, ``amax`` and
    ``dynamic_range``. Derived from sums are ``mean``, ``var``, ``std``, ``sample_std``, ``skewness``, ``kurtosis``, ``rms``, ``l1_norm``
    and ``l2_norm``, which are None if the pass computed no sums (``has_moments`` is False) or if they are undefined (the mean of nothing,
    the skewness of a constant).

    Error bound: with the sums' rounding errors taken as 2^-44 of the magnitudes added, ``var``, ``kurtosis`` and ``l2_norm`` are None if
    their relative error could exceed a thousandth, and ``skewness`` if its error could exceed a thousandth of max(1, abs(skewness)). Of
    tensors with mean / std up to 1e8 in float64, merged from up to 10,000 parts, all are right to 1e-10; that is tested.

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
    dev_sum: float = 0.0
    abs_sum: float = 0.0
    dev_square_sum: float = 0.0
    dev_cube_sum: float = 0.0
    dev_fourth_sum: float = 0.0
    center: float = 0.0

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
        return cls(*fields_of(row))

    def to_row(self) -> list[float]:
        """The row: ``from_row(s.to_row()) == s``."""
        present = (self.min, self.max, self.abs_min, self.abs_max)
        extrema = (empty if x is None else x for x, empty in zip(present, EMPTY_ROW[6:10], strict=True))
        counts = (self.numel, self.num_nan, self.num_pos_inf, self.num_neg_inf, self.num_zero, self.num_subnormal)
        sums = (self.dev_sum, self.abs_sum, self.dev_square_sum, self.dev_cube_sum, self.dev_fourth_sum)
        return [*map(float, counts), *extrema, *sums, self.center]

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
        return self.numel - self.num_nan - self.num_pos_inf - self.num_neg_inf

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
    def sum(self) -> float:
        """Sum of the finite elements."""
        return self._raw[0]

    @property
    def square_sum(self) -> float:
        """Sum of the finite elements' squares."""
        return self._raw[1]

    @property
    def cube_sum(self) -> float:
        """Sum of the finite elements' cubes."""
        return self._raw[2]

    @property
    def fourth_sum(self) -> float:
        """Sum of the finite elements' fourth powers."""
        return self._raw[3]

    @property
    def _devs(self) -> Sums:
        return self.dev_sum, self.dev_square_sum, self.dev_cube_sum, self.dev_fourth_sum

    @property
    def _raw(self) -> Sums:
        """Sums of powers of the elements themselves; infinite where a sum that they need is not finite."""
        if not self.center:
            return self._devs
        s1, s2, s3, s4 = (x if math.isfinite(x) else math.inf for x in moved(self.num_finite, self._devs, self.center))
        return s1, s2, s3, s4

    @property
    def has_moments(self) -> bool:
        """Whether sums were computed: with a non-zero element, the sum of magnitudes is not zero."""
        return self.abs_min is None or self.abs_sum != 0.0

    @property
    def mean(self) -> float | None:
        if not self.num_finite or not self.has_moments or not math.isfinite(self.dev_sum):
            return None
        return self.center + self.dev_sum / self.num_finite

    @property
    def var(self) -> float | None:
        """Population variance (NumPy's ``ddof=0``); None if the sums' rounding errors hide it."""
        if not self.num_finite or not self.has_moments:
            return None
        if self.min == self.max:
            return 0.0
        mean, square = self.dev_sum / self.num_finite, self._square
        var = square - mean * mean
        return var if 0 < var < math.inf and 3 * ROUNDING * square + TINY <= TOLERANCE * var else None

    @property
    def _square(self) -> float:
        """The mean square of deviations from the center."""
        return self.dev_square_sum / self.num_finite

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
        """Third standardized moment; None for a constant, or if rounding errors hide it."""
        var, n = self.var, self.num_finite
        cube = var * math.sqrt(var) if var else 0.0
        if not 0 < cube < math.inf or self.max is None or self.min is None:
            return None
        mean = self.dev_sum / n
        skewness = (self.dev_cube_sum / n - mean * (3 * self._square - 2 * mean * mean)) / cube
        farthest = max(self.max - self.center, self.center - self.min)  # mean(|x - center|^3) is at most that times the mean square
        error = 10 * ROUNDING * self._square * farthest + TINY
        return skewness if math.isfinite(skewness) and error <= TOLERANCE * max(1.0, abs(skewness)) * cube else None

    @property
    def kurtosis(self) -> float | None:
        """Fourth standardized moment, 3 for a normal distribution; None for a constant, or if rounding errors hide it."""
        var, n = self.var, self.num_finite
        if not var or not 0 < var * var < math.inf:
            return None
        mean, square = self.dev_sum / n, self._square
        fourth = self.dev_fourth_sum / n - mean * (4 * self.dev_cube_sum / n - mean * (6 * square - 3 * mean * mean))
        kurtosis = max(fourth, 0.0) / (var * var)
        error = 20 * ROUNDING * self.dev_fourth_sum / n + TINY
        return kurtosis if math.isfinite(kurtosis) and error <= TOLERANCE * kurtosis * var * var else None

    @property
    def rms(self) -> float | None:
        """Root mean square."""
        total = self.known_square_sum
        return math.sqrt(total / self.num_finite) if total is not None and self.num_finite else None

    @property
    def l1_norm(self) -> float | None:
        return self.abs_sum if self.has_moments and math.isfinite(self.abs_sum) else None

    @property
    def l2_norm(self) -> float | None:
        total = self.known_square_sum
        return None if total is None else math.sqrt(total)

    @property
    def known_square_sum(self) -> float | None:
        """``square_sum``; None without sums, or if it overflowed, underflowed or is hidden by rounding errors."""
        total = self.square_sum
        if not self.has_moments or not math.isfinite(total):
            return None
        added = self.dev_square_sum + self.num_finite * self.center * self.center
        known = not self.abs_max or 3 * ROUNDING * added + self.num_finite * TINY <= TOLERANCE * total
        return total if known else None

    def finalize(self) -> dict[str, int | float | None]:
        """All stored and derived numbers by name, in the order of ``FIELDS`` and ``DERIVED``."""
        return {name: getattr(self, name) for name in (*FIELDS, *DERIVED)}

    def _repr_html_(self) -> str:
        def text(value: float | None) -> str:
            return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"

        counts = [element("span", text(x), style=BAD if x else "") for x in (self.num_nan, self.num_pos_inf, self.num_neg_inf)]
        shares = ["–" if x is None else f"{x:.3g} %" for x in (self.zero_pct, self.subnormal_pct)]
        of_all = table([[text(self.numel), *counts, *shares]], ("elements", "nan", "inf", "-inf", "zeros", "subnormals"))
        numbers = {"min": self.min, "max": self.max, "smallest magnitude": self.abs_min, "largest": self.abs_max}
        if self.has_moments:
            numbers |= {"mean": self.mean, "std": self.std, "rms": self.rms, "l2_norm": self.l2_norm}
        of_finite = table([[text(value) for value in numbers.values()]], tuple(numbers))
        return element("div", of_all, element("span", "Of the finite elements:", style=QUIET), of_finite)


def fields_of(row: Sequence[float]) -> tuple[Any, ...]:
    numel, num_nan, num_pos_inf, num_neg_inf, num_zero, num_subnormal, low, high, abs_low, abs_high = row[:10]
    return (
        *(int(numel), int(num_nan), int(num_pos_inf), int(num_neg_inf), int(num_zero), int(num_subnormal)),
        # a finite element's extremum is finite
        *(None if math.isinf(low) else low, None if math.isinf(high) else high),
        *(None if math.isinf(abs_low) else abs_low, None if math.isinf(abs_high) else abs_high),
        *row[10:16],
    )


ROUNDING = 2.0**-44  # error of a sum, relative to the magnitudes added: more than 10,000 additions leave, unless their errors conspire
TINY = 2.0**-1022  # largest loss of a power by underflow
TOLERANCE = 1e-3  # the largest error of a value that is not left out
Sums = tuple[float, float, float, float]


def moved(n: Any, sums: Sequence[Any], d: Any) -> tuple[Any, Any, Any, Any]:
    """Sums of the first four powers of n elements' distances from a center, as those from a center that is d lower. Also of tensors."""
    s1, s2, s3, s4 = sums
    return (
        s1 + d * n,
        s2 + d * (2 * s1 + d * n),
        s3 + d * (3 * s2 + d * (3 * s1 + d * n)),
        s4 + d * (4 * s3 + d * (6 * s2 + d * (4 * s1 + d * n))),
    )


def merge_rows(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Two rows merged: counts and sums add up, extrema combine; of different centers that of fewer elements moves to the other's.

    *Cost:* a microsecond or two.
    """
    merged = [x + y for x, y in zip(a, b, strict=True)]
    merged[6:10] = min(a[6], b[6]), max(a[7], b[7]), min(a[8], b[8]), max(a[9], b[9])
    merged[15] = a[15]
    if a[15] != b[15]:
        fewer, more = sorted((a, b), key=lambda row: (row[0] - sum(row[1:4]), -abs(row[15]), row[15]))
        s1, *others = moved(fewer[0] - sum(fewer[1:4]), (fewer[10], *fewer[12:15]), fewer[15] - more[15])
        merged[10] = more[10] + s1
        merged[12:15] = [x + y for x, y in zip(more[12:15], others, strict=True)]
        merged[15] = more[15]
    return merged
