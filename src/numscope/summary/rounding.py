"""Rounding to a number format's grid in torch operations, for casts on paper and for quantization."""

from __future__ import annotations

import torch
from torch import Tensor

from numscope.records.formats import Format

__all__ = ["rounded"]


def rounded(x: Tensor, form: Format, stochastic: bool = False, generator: torch.Generator | None = None) -> Tensor:
    """Numbers, float32 or float64, rounded to a format's grid, as if its exponents were unbounded above.

    NaN and infinities stay. With a format without zero, numbers below its smallest number become that number, and negative numbers
    except -0 become NaN.

    Args:
        stochastic: to either neighbor, with probabilities that make the mean exact (to 2^-24 of their distance); numbers on the grid stay.
            Else to the nearest, ties to the even significand (with e8m0 therefore up).

    *Cost:* some six passes over memory; formats with float32's range are rounded in float64. No host sync.
    """
    if form.name == "fp32" and x.dtype is torch.float32:
        return x
    # A format whose smallest numbers are subnormal in float32 is rounded in float64.
    wide = x.dtype is torch.float64 or form.min_exponent - form.fraction_bits < -126
    y = x.to(torch.float64) if wide else x
    integer, fraction_bits, bias = (torch.int64, 52, 1023) if wide else (torch.int32, 23, 127)
    exponent = ((y.view(integer) >> fraction_bits) & (2 * bias + 1)) - bias
    quantum_exponent = exponent.clamp(form.min_exponent, bias) - form.fraction_bits
    quantum = ((quantum_exponent + bias) << fraction_bits).view(y.dtype)  # two to that power, built from bits: exact everywhere
    steps = y / quantum
    if stochastic:
        magnitude = steps.abs()
        lower = magnitude.floor()
        chance = torch.rand(y.shape, generator=generator, dtype=y.dtype, device=y.device)
        # A comparison rather than floor(magnitude + chance): that sum rounds and would move numbers on the grid.
        steps = torch.copysign(lower + (chance < magnitude - lower), y)
    else:
        steps = torch.round(steps)
    grid = steps * quantum
    if not form.has_zero:
        grid = torch.where(torch.isfinite(y), grid, y)
        smallest = torch.full_like(y, form.min_subnormal)
        grid = torch.where(y < 0, torch.nan, torch.where(y <= smallest, smallest, grid))
    if not form.signed_zero:
        grid = grid + 0.0
    return grid.to(x.dtype)
