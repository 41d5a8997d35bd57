"""Every code of the small formats as an exact rational number, written from the specifications; rounding by search; block casts by loops.

Nothing here is the package's: a format is known by name, and what a code means is said once more.
"""

from __future__ import annotations

import bisect
import math
import struct
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np

SMALL = ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu", "e2m3fn", "e3m2fn", "e2m1fn", "int8")
BITS = {"e2m3fn": 6, "e3m2fn": 6, "e2m1fn": 4}
_FIELDS = {  # exponent bits, fraction bits, bias
    "e4m3fn": (4, 3, 7),
    "e5m2": (5, 2, 15),
    "e4m3fnuz": (4, 3, 8),
    "e5m2fnuz": (5, 2, 16),
    "e2m3fn": (2, 3, 1),
    "e3m2fn": (3, 2, 3),
    "e2m1fn": (2, 1, 1),
}
Number = Fraction | float  # a float is inf, -inf or nan


def value(name: str, code: int) -> Number:
    """What a code means; -0 is 0."""
    if name == "int8":
        return Fraction(code - 256 if code > 127 else code)
    if name == "e8m0fnu":
        return math.nan if code == 255 else Fraction(2) ** (code - 127)
    bits = BITS.get(name, 8)
    sign, magnitude = (-1 if code >> (bits - 1) else 1), code & ((1 << (bits - 1)) - 1)
    if name.endswith("fnuz") and code == 0x80:
        return math.nan
    if name == "e4m3fn" and magnitude == 0x7F:
        return math.nan
    if name == "e5m2" and magnitude >= 0x7C:
        return sign * math.inf if magnitude == 0x7C else math.nan
    _, num_fraction, bias = _FIELDS[name]
    field, fraction = magnitude >> num_fraction, Fraction(magnitude & ((1 << num_fraction) - 1), 1 << num_fraction)
    return sign * ((1 + fraction) * Fraction(2) ** (field - bias) if field else fraction * Fraction(2) ** (1 - bias))


@cache
def magnitudes(name: str) -> list[tuple[Fraction, int]]:
    """Each finite number that is not negative, with its code, ascending."""
    if name == "int8":
        return [(Fraction(code), code) for code in range(128)]
    found = ((value(name, code), code) for code in range(1 << (BITS.get(name, 8) - (name != "e8m0fnu"))))
    return [(number, code) for number, code in found if isinstance(number, Fraction)]


def beyond(name: str) -> Fraction:
    """What the number after the largest would be."""
    table = magnitudes(name)
    return 2 * table[-1][0] if name == "e8m0fnu" else 2 * table[-1][0] - table[-2][0]


@dataclass
class Rounded:
    magnitude: Number
    code: int | None  # without sign; None where it overflowed
    overflowed: bool = False


def nearest(name: str, y: Fraction) -> Rounded:
    """A number that is not negative rounded to the nearest, to the one with the even code between two."""
    table = magnitudes(name)
    grid = [number for number, _ in table] + [beyond(name)]
    codes = [code for _, code in table] + [table[-1][1] + 1]
    above = bisect.bisect_left(grid, y)
    if above == len(grid):
        return Rounded(grid[-1], None, True)
    if above and grid[above] != y:
        low, high = y - grid[above - 1], grid[above] - y
        # Of e8m0, all of whose significands are 1, the midpoint goes up: as torch has it, and as 2 × 2^e is even and 1 × 2^e odd.
        above -= low < high or (low == high and name != "e8m0fnu" and codes[above] % 2)
    return Rounded(grid[above], codes[above], True) if above == len(table) else Rounded(grid[above], codes[above])


def cast_number(name: str, y: float, saturate: bool = True) -> tuple[float, bool]:
    """A float as the format has it, and whether it overflowed."""
    if math.isnan(y) or (name == "e8m0fnu" and y < 0):
        return math.nan, False
    top = float(magnitudes(name)[-1][0])
    got = Rounded(math.inf, None, True) if math.isinf(y) else nearest(name, abs(Fraction(y)))
    if got.overflowed:
        magnitude = top if saturate else math.inf if name == "e5m2" else math.nan
    else:
        magnitude = float(got.magnitude)
    signed_zero = name in ("e4m3fn", "e5m2", "e2m3fn", "e3m2fn", "e2m1fn")
    return (magnitude if name == "e8m0fnu" or (magnitude == 0 and not signed_zero) else math.copysign(magnitude, y)), got.overflowed


def edges(name: str, dtype: type = np.float32) -> np.ndarray:
    """All codes, all midpoints, the overflow's too, and the numbers next to these; of both signs; zeros, infinities, nan, extremes."""
    grid = [float(number) for number, _ in magnitudes(name)] + [float(beyond(name))]
    points = np.array(grid + [(a + b) / 2 for a, b in pairwise(grid)], dtype=np.float64)
    with np.errstate(over="ignore"):
        points = points.astype(dtype)
        points = np.concatenate([points, np.nextafter(points, dtype(math.inf)), np.nextafter(points, dtype(-math.inf))])
        info = np.finfo(dtype)
        extremes = np.array([0, 1, 3, math.inf, math.nan, info.max, info.tiny, info.smallest_subnormal], dtype=dtype)
    points = np.concatenate([points, extremes])
    return np.concatenate([points, -points])


def codes_of_numbers(name: str, numbers: np.ndarray) -> list[int]:
    """The codes of numbers that a format has; nan is -1."""
    by_magnitude = {float(number): code for number, code in magnitudes(name)}
    codes = []
    for number in numbers.tolist():
        if math.isnan(number):
            codes.append(-1)
            continue
        code = 0x7C if name == "e5m2" and math.isinf(number) else by_magnitude[abs(number)]
        if math.copysign(1, number) < 0:
            code = (256 - code) % 256 if name == "int8" else code | 1 << (BITS.get(name, 8) - 1)
        codes.append(code)
    return codes


@dataclass
class Model:
    """What a cast should give: numbers, ``scale_inv`` and counts, element by element."""

    values: np.ndarray
    scale_inv: np.ndarray
    num_underflow: int
    num_overflow: int
    square_error: float
    amax: np.float32


def _float32(x: float) -> np.float32:
    with np.errstate(all="ignore"):
        return np.float32(x)


def floor_to_power_of_two(x: np.float32) -> np.float32:
    return np.float32(math.ldexp(1.0, math.frexp(float(x))[1] - 1))


def scale_of(amax: np.float32, top: float, margin: int, power_of_two: bool = False, previous: float = 1.0) -> np.float32:
    """Format maximum / amax / 2^margin, in float32 at each step."""
    if not 0 < amax < math.inf:
        return np.float32(previous)
    with np.errstate(all="ignore"):
        scale = np.float32(top) / amax / np.float32(2.0**margin)
    scale = min(max(scale, np.finfo(np.float32).tiny), np.finfo(np.float32).max)
    return floor_to_power_of_two(scale) if power_of_two else scale


def cast_matrix(
    x: np.ndarray,
    name: str,
    sides: tuple[int, int],
    scale_format: str | None = None,
    margin: int = 0,
    power_of_two: bool = False,
    scale: float | None = None,
    e8m0_rounding: str = "floor",
) -> Model:
    """A matrix cast block by block; a side of 0 is all of it."""
    rows, columns = x.shape
    block_rows, block_columns = sides[0] or rows, sides[1] or columns
    top = float(magnitudes(name)[-1][0])
    emax = math.frexp(top)[1] - 1
    has_nan = name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")
    magnitude = np.nan_to_num(np.abs(x), nan=0.0, posinf=math.inf)
    tensor_amax = magnitude.max()
    outer = scale_of(tensor_amax, top * 448.0, margin)
    num_blocks = -(-rows // block_rows), -(-columns // block_columns)
    model = Model(np.empty_like(x), np.empty(num_blocks, dtype=np.float32), 0, 0, 0.0, tensor_amax)
    for i in range(num_blocks[0]):
        for j in range(num_blocks[1]):
            place = np.s_[i * block_rows : (i + 1) * block_rows, j * block_columns : (j + 1) * block_columns]
            block, amax = x[place], magnitude[place].max()
            if scale is not None:
                factor, inverse = np.float32(scale), np.float32(1) / np.float32(scale)
            elif scale_format == "e8m0":
                exponent = 127 if math.isinf(amax) else -127 if amax == 0 else math.frexp(float(amax))[1] - 1 - emax + margin
                if e8m0_rounding == "rceil" and 0 < amax < math.inf:  # the first power of two that is enough
                    exponent += Fraction(float(amax)) > Fraction(top) * Fraction(2) ** (exponent - margin)
                exponent = min(max(exponent, -127), 127)
                factor, inverse = _float32(math.ldexp(1.0, -exponent)), _float32(math.ldexp(1.0, exponent))
            elif scale_format == "e4m3fn":
                with np.errstate(over="ignore"):
                    wanted = min(amax / np.float32(top) * outer, np.float32(448))
                inner = np.float32(cast_number("e4m3fn", float(wanted))[0])
                factor = outer / inner if inner else np.float32(0)
                inverse = inner * (np.float32(1) / outer)
            else:
                factor = scale_of(amax, top, margin, power_of_two)
                inverse = np.float32(1) / factor
            if np.isnan(block).any() and (scale_format is not None or not has_nan):
                factor = inverse = np.float32(math.nan)
            model.scale_inv[i, j] = inverse
            for (r, c), number in np.ndenumerate(block):
                with np.errstate(all="ignore"):
                    q, over = cast_number(name, float(number * factor))
                    back = np.float32(q) * inverse
                model.values[i * block_rows + r, j * block_columns + c] = back
                model.num_underflow += bool(q == 0 and number != 0 and np.isfinite(number))
                model.num_overflow += over
                if np.isfinite(number) and np.isfinite(back):
                    model.square_error += (float(back) - float(number)) ** 2
    return model


def bf16(x: float) -> float:
    """A float32 rounded to bfloat16 by its bits."""
    return _shortened(x, 16)


def tf32(x: float) -> float:
    """A float32 rounded to tf32 by its bits."""
    return _shortened(x, 13)


def _shortened(x: float, dropped: int) -> float:
    (bits,) = struct.unpack("<I", struct.pack("<f", x))
    bits = (bits + (1 << (dropped - 1)) - 1 + ((bits >> dropped) & 1)) >> dropped << dropped
    rounded: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return rounded
