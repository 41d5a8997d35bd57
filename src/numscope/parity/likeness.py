"""How two tensors differ, by their sketches alone.

A distance estimated from sketches is within 0.75 and 1.47 of itself in 99 % of cases, and so is every bound here; what the elements are
makes no difference, only the hash does (Johnson and Lindenstrauss). Norms are no estimates: a sketch has its tensor's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from numscope.records.fingerprint import REPEATS, Sketch

LEAST, MOST = 0.75, 1.47  # of an estimated norm, the true one
_FACTOR_ERROR = 0.55  # of a factor, in units of the rest's norm over that of the first tensor
ROUNDED = {"bfloat16": 2.0**-11, "float16": 2.0**-15}  # of a norm: rounding a tensor to such a dtype moves it by more
ROUNDING = 2.0**-21  # of a norm: what sketches of the same elements differ by where they were cut in other places


@dataclass(frozen=True, slots=True)
class Likeness:
    """How b differs from a.

    Args:
        equal: all bits are equal, up to 1 in 2^48.
        difference: |b - a| / |a|; infinite where a is 0 and b is not.
        factor: the c for which c a is nearest to b.
        rest: |b - c a| / |a|.
        cosine: of the angle between them.
        num_nonfinite: of a and of b, elements that are nan or infinite; they count as 0.
    """

    equal: bool
    difference: float
    factor: float
    rest: float
    cosine: float
    num_nonfinite: tuple[int, int] = (0, 0)

    @property
    def difference_bounds(self) -> tuple[float, float]:
        """Between which the difference is, 99 times of 100."""
        return bounds(self.difference, self.equal)

    @property
    def factor_error(self) -> float:
        """By which the factor is off at most, 99 times of 100."""
        return 0.0 if self.equal else _FACTOR_ERROR * self.rest + ROUNDING

    @property
    def cosine_bounds(self) -> tuple[float, float]:
        """Between which the cosine is, 99 times of 100."""
        if self.equal or not self.factor:
            return self.cosine, self.cosine
        share = self.rest / math.hypot(self.factor, self.rest)  # of b, what is across a
        if share < 0.5:  # the angle is better known than the factor
            near, far = (math.sqrt(1 - min(1.0, share * side) ** 2) for side in (LEAST, MOST))
            return (far, near) if self.factor > 0 else (-near, -far)
        error = self.factor_error * abs(self.cosine / self.factor)
        return max(-1.0, self.cosine - error), min(1.0, self.cosine + error)

    def text(self) -> str:
        """In a few words, with bounds."""
        if self.equal:
            return "equal bits"
        bad = f"; {self.num_nonfinite[0]} and {self.num_nonfinite[1]} elements not finite" if any(self.num_nonfinite) else ""
        if self.difference <= ROUNDING:
            return f"equal numbers{bad}"
        low, high = self.difference_bounds
        told = f"differ by {self.difference:.2g} of the norm ({low:.2g} to {high:.2g})"
        return f"{told}, cosine {self.cosine:.6g}, factor {self.factor:.6g} ± {self.factor_error:.1g}{bad}"


def bounds(norm: float, exact: bool = False) -> tuple[float, float]:
    """Between which a norm is that was estimated, 99 times of 100."""
    return (norm, norm) if exact else (max(0.0, LEAST * norm - ROUNDING), MOST * norm + ROUNDING)


def norm_of(sums: Sequence[float]) -> float:
    """The estimated norm of what has these sums."""
    return math.sqrt(math.fsum(one * one for one in sums) / REPEATS)


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    """The estimated product of what has these sums."""
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / REPEATS


def likeness(a: Sketch, b: Sketch, same_type: bool = True) -> Likeness:
    """How two tensors of the same shape differ.

    Args:
        same_type: whether their dtypes are the same, so that checksums can be compared.
    """
    counts = (a.num_nonfinite, b.num_nonfinite)
    if same_type and a.checksum == b.checksum and a.numel == b.numel:
        return Likeness(True, 0.0, 1.0, 0.0, 1.0, counts)
    difference = norm_of([y - x for x, y in zip(a.sums, b.sums, strict=True)])
    square = dot(a.sums, a.sums)
    if not a.norm or not square:
        return Likeness(
            False, math.inf if b.norm else 0.0, 0.0 if b.norm else 1.0, math.inf if b.norm else 0.0, 0.0 if b.norm else 1.0, counts
        )
    factor = dot(a.sums, b.sums) / square
    rest = norm_of([y - factor * x for x, y in zip(a.sums, b.sums, strict=True)])
    if rest < LEAST * b.norm:
        cosine = math.copysign(math.sqrt(1 - (rest / b.norm) ** 2), factor)
    else:
        cosine = max(-1.0, min(1.0, factor * a.norm / b.norm)) if b.norm else 0.0
    return Likeness(False, difference / a.norm, factor, rest / a.norm, cosine, counts)
