"""Quantization in plain torch operations: the oracle of the native kernel, and the backend on devices. No host sync.

*Cost:* about eight passes over memory for per-tensor e4m3fn, e5m2, fp16 and bf16; about twenty for other formats and for blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from numscope.precision.casting.scaling import How, Scaling, amax_of, block_scales, blocked
from numscope.records.formats import Format

NUM_CELLS = 6
_CASTABLE = {"e4m3fn", "e5m2", "fp16", "bf16"}  # torch casts float32 to these by nearest even, in every version and on every device


def dtype_of(form: Format) -> torch.dtype:
    """The dtype of a format's codes: torch's own if it has one, ``uint8`` for six and four bits, ``float32`` for tf32."""
    if form.torch_name is not None:
        dtype: torch.dtype = getattr(torch, form.torch_name)
        return dtype
    return torch.uint8 if form.bits <= 8 else torch.float32


def _quantized(y: Tensor, how: How, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scaled numbers rounded to the format, a mask of those that overflowed, and the codes if they were computed on the way."""
    form, limit = how.format, how.format.overflow_limit
    if how.rounding == "nearest_even" and y.dtype is torch.float32 and form.name in _CASTABLE:
        magnitude = y.abs()
        over = magnitude >= limit if form.limit_overflows else magnitude > limit
        codes = y.clamp(-form.max, form.max).to(dtype_of(form))  # clamp keeps NaN; torch versions differ in casts beyond the maximum
        q = codes.to(torch.float32)
        if how.saturate:
            return q, over, codes
        return _overflowing(q, y, over, form), over, None
    q = rounded(y, form, how.rounding == "stochastic", generator)
    over = q.abs() > form.max
    q = q.clamp(-form.max, form.max) if how.saturate else _overflowing(q, y, over, form)
    return q, over, None


def _overflowing(q: Tensor, y: Tensor, over: Tensor, form: Format) -> Tensor:
    beyond = torch.copysign(torch.full_like(q, torch.inf), y) if form.has_inf else torch.nan
    return torch.where(over, beyond, q)


def codes_of(q: Tensor, form: Format) -> Tensor:
    """The codes, of ``dtype_of(form)``, of numbers that the format has. NaN is code 0 in a format without NaN."""
    q = q.to(torch.float32)
    if not form.has_nan:
        q = torch.where(torch.isnan(q), 0.0, q)
    if form.torch_name is not None or form.bits > 8:
        return q.to(dtype_of(form))
    magnitude = q.abs()
    bits = magnitude.view(torch.int32)
    normal = (((bits >> 23) - 127 + form.bias) << form.fraction_bits) | ((bits & 0x7FFFFF) >> (23 - form.fraction_bits))
    code = torch.where(magnitude < form.min_normal, (magnitude / form.min_subnormal).to(torch.int32), normal)
    return (code | (torch.signbit(q).to(torch.int32) << (form.bits - 1))).to(torch.uint8)


def decode(codes: Tensor, form: Format) -> Tensor:
    """The float32 numbers of codes, which are of ``dtype_of(form)``."""
    if codes.dtype is not torch.uint8:
        return codes.to(torch.float32)
    code = codes.to(torch.int32)
    fraction = code & ((1 << form.fraction_bits) - 1)
    field = (code >> form.fraction_bits) & ((1 << form.exponent_bits) - 1)
    significand = torch.where(field > 0, fraction + (1 << form.fraction_bits), fraction).to(torch.float32)
    power = ((field.clamp(min=1) - form.bias - form.fraction_bits + 127) << 23).view(torch.float32)
    return torch.where((code >> (form.bits - 1)) & 1 > 0, -significand, significand) * power


class CastCall(NamedTuple):
    """The checked arguments of ``cast`` without the tensor."""

    how: How
    scale: Tensor | None = None
    columnwise: bool = False
    values: bool = True
    codes: bool = False
    cells: Tensor | None = None
    amax: Tensor | None = None
    group: object = None
    generator: torch.Generator | None = None


def cast_matrix(x: Tensor, call: CastCall) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Casts a matrix of any real dtype; returns its values, codes and scale_inv."""
    how, scale, columnwise, want_values, want_codes, cells, amax, group, generator = call
    form, scaling = how.format, how.scaling
    work = x if x.dtype is torch.float64 else x.to(torch.float32)
    sides = scaling.sides(columnwise)
    rows, columns = _sides_within(sides, x)
    # The scale carries NaN if the format has none, and if the scale has a format (the microscaling rule).
    nan_by_scale = not form.has_nan or scaling.scale_format is not None
    magnitude: Tensor | None = None
    if amax is not None or scale is None:
        magnitude = torch.nan_to_num(work.abs(), nan=0.0, posinf=torch.inf)
    if amax is not None and magnitude is not None and x.numel():
        amax.copy_(torch.maximum(amax, magnitude.amax().to(torch.float32)))
    lost: Tensor | None = None
    if nan_by_scale and x.numel():
        lost = torch.isnan(amax_of(work.abs(), rows, columns))  # amax returns NaN if there is one
    if scale is None:
        assert magnitude is not None
        if x.numel():
            per_block = amax_of(magnitude, rows, columns).to(torch.float32)
        else:
            per_block = torch.zeros(num_blocks(sides, x), dtype=torch.float32, device=x.device)
        if scaling.kind == "tensor" and group is not None:
            per_block = largest_of_group(per_block, group)
        outer = None
        if scaling.scale_format == "e4m3fn":
            outer = per_block.amax() if per_block.numel() else per_block.new_zeros(())
            if group is not None:
                outer = largest_of_group(outer, group)
        if lost is not None:
            per_block = torch.where(lost, torch.nan, per_block)
        scales, scales_inv = block_scales(per_block, how, outer)
    else:
        scales = scale.reshape(1, 1).to(torch.float32)
        scales_inv = 1.0 / scales
        if lost is not None:
            scales, scales_inv = (torch.where(lost, torch.nan, s) for s in (scales, scales_inv))
    y = _times(work, scales, rows, columns)
    q, over, codes = _quantized(y, how, generator)
    dequantized = _times(q, scales_inv, rows, columns) if want_values or cells is not None else None
    if cells is not None and dequantized is not None:
        _count(cells, work, q, over, dequantized, scales, scales_inv)
    return (
        dequantized.to(x.dtype) if want_values and dequantized is not None else None,
        (codes if codes is not None else codes_of(q, form)) if want_codes else None,
        scales_inv.reshape(()) if scaling.kind == "tensor" else scales_inv,
    )


def num_blocks(sides: tuple[int, int], x: Tensor) -> tuple[int, int]:
    """Blocks along the columns and along the rows of a matrix; a side of 0 spans all of it."""
    rows, columns = (-(-size // side) if side else 1 for size, side in zip(x.shape, sides, strict=True))
    return rows, columns


def _sides_within(sides: tuple[int, int], x: Tensor) -> tuple[int, int]:
    rows, columns = (side or max(size, 1) for size, side in zip(x.shape, sides, strict=True))
    return rows, columns


def scaled_back(numbers: Tensor, scale_inv: Tensor, scaling: Scaling, columnwise: bool = False) -> Tensor:
    """The numbers of codes, of any shape, times their ``scale_inv``."""
    if scaling.kind == "tensor":
        return numbers * scale_inv
    matrix = as_matrix(numbers)
    return _times(matrix, scale_inv, *_sides_within(scaling.sides(columnwise), matrix)).reshape(numbers.shape)


def as_matrix(x: Tensor) -> Tensor:
    """A tensor as a matrix, last dimension by all others; a tensor of no dimensions is 1 by 1."""
    return x.reshape(x.shape[:-1].numel(), x.shape[-1] if x.dim() else 1)


def _times(x: Tensor, factors: Tensor, rows: int, columns: int) -> Tensor:
    """Each block of a matrix times its factor."""
    num_rows, num_columns = x.shape
    if not x.numel():
        return x
    if factors.numel() == 1 or factors.shape in ((num_rows, 1), (1, num_columns), (num_rows, num_columns)):
        return x * factors
    product = blocked(x, rows, columns) * factors[:, None, :, None]
    product = product.reshape(factors.shape[0] * rows, factors.shape[1] * columns)
    return product[:num_rows, :num_columns]


def _count(cells: Tensor, x: Tensor, q: Tensor, over: Tensor, dequantized: Tensor, scale: Tensor, scale_inv: Tensor) -> None:
    if not x.numel():
        return
    # Only elements that are finite on both sides count.
    error = (dequantized.to(torch.float64) - x).nan_to_num_(0.0, 0.0, 0.0)
    square_error = error.square_().sum()
    num_underflow = ((q == 0) & (x != 0)).sum()  # no scale turns infinity or NaN into zero
    numel = torch.full_like(square_error, x.numel())
    cells[:4] += torch.stack([numel, num_underflow.to(torch.float64), over.sum().to(torch.float64), square_error])
    largest = torch.stack([torch.nan_to_num(s, nan=0.0, posinf=torch.inf).amax() for s in (scale, scale_inv)]).to(torch.float64)
    cells[4:] = torch.maximum(cells[4:], largest)


def largest_of_group(amax: Tensor, group: object) -> Tensor:
    """The largest amaxes of a process group's ranks, in place."""
    import torch.distributed as dist

    dist.all_reduce(amax, op=dist.ReduceOp.MAX, group=group)
    return amax


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
