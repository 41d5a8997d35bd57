"""Quantization in plain torch operations: the oracle of the native kernel, and the backend on devices. No host sync.

*Cost:* for per-tensor e4m3fn, e5m2, fp16 and bf16 some eight passes over memory, some twenty for other formats and for blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from numscope.precision.casting.scaling import How, Scaling, amax_of, block_scales, blocked
from numscope.records.formats import Format
from numscope.summary.rounding import rounded

__all__ = ["NUM_CELLS", "as_matrix", "cast_matrix", "codes_of", "decode", "dtype_of", "num_blocks", "scaled_back"]

NUM_CELLS = 6
_CASTABLE = {"e4m3fn", "e5m2", "fp16", "bf16"}  # torch's own casts from float32 to these round to nearest even on every version and device


def dtype_of(form: Format) -> torch.dtype:
    """Of a format's codes: torch's own where it has one, ``uint8`` for six and four bits, ``float32`` for tf32."""
    if form.torch_name is not None:
        dtype: torch.dtype = getattr(torch, form.torch_name)
        return dtype
    return torch.uint8 if form.bits <= 8 else torch.float32


def _quantized(y: Tensor, how: How, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scaled numbers as the format has them, which of them overflowed, and their codes where they came about anyway."""
    form, limit = how.format, how.format.overflow_limit
    if how.rounding == "nearest_even" and y.dtype is torch.float32 and form.name in _CASTABLE:
        magnitude = y.abs()
        over = magnitude >= limit if form.limit_overflows else magnitude > limit
        codes = y.clamp(-form.max, form.max).to(dtype_of(form))  # clamp keeps NaN; what is left rounds alike everywhere
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
    """The codes of numbers that are on a format's grid.

    Args:
        q: float32 or float64; NaN of a format that has none is code 0.

    Returns:
        ``dtype_of(form)``
    """
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
    """Numbers of codes: float32.

    Args:
        codes: of ``dtype_of(form)``.
    """
    if codes.dtype is not torch.uint8:
        return codes.to(torch.float32)
    code = codes.to(torch.int32)
    fraction = code & ((1 << form.fraction_bits) - 1)
    field = (code >> form.fraction_bits) & ((1 << form.exponent_bits) - 1)
    significand = torch.where(field > 0, fraction + (1 << form.fraction_bits), fraction).to(torch.float32)
    power = ((field.clamp(min=1) - form.bias - form.fraction_bits + 127) << 23).view(torch.float32)
    return torch.where((code >> (form.bits - 1)) & 1 > 0, -significand, significand) * power


def cast_matrix(
    x: Tensor,
    how: How,
    scale: Tensor | None,
    columnwise: bool,
    want_values: bool,
    want_codes: bool,
    cells: Tensor | None,
    amax: Tensor | None,
    group: object,
    generator: torch.Generator | None,
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """What ``cast`` does, for a matrix.

    Args:
        x: [M, K] of any real dtype.
        others: as for ``cast``.

    Returns:
        Values, codes and scale_inv.
    """
    form, scaling = how.format, how.scaling
    num_rows, num_columns = x.shape
    work = x if x.dtype is torch.float64 else x.to(torch.float32)
    rows, columns = _block_sides(scaling, num_rows, num_columns, columnwise)
    # NaN is the scale's business where the format has none, and where the scale has a format (the microscaling rule).
    nan_by_scale = not form.has_nan or scaling.scale_format is not None
    magnitude: Tensor | None = None
    if amax is not None or scale is None:
        magnitude = torch.nan_to_num(work.abs(), nan=0.0, posinf=torch.inf)
    if amax is not None and magnitude is not None and x.numel():
        amax.copy_(torch.maximum(amax, magnitude.amax().to(torch.float32)))
    lost: Tensor | None = None
    if nan_by_scale and x.numel():
        lost = torch.isnan(amax_of(work.abs(), rows, columns))  # NaN goes before all other numbers there
    if scale is None:
        assert magnitude is not None
        if x.numel():
            per_block = amax_of(magnitude, rows, columns).to(torch.float32)
        else:
            per_block = torch.zeros(num_blocks(scaling, num_rows, num_columns, columnwise), dtype=torch.float32, device=x.device)
        if scaling.kind == "tensor" and group is not None:
            per_block = _largest_of_group(per_block, group)
        outer = None
        if scaling.scale_format == "e4m3fn":
            outer = per_block.amax() if per_block.numel() else per_block.new_zeros(())
            if group is not None:
                outer = _largest_of_group(outer, group)
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


def num_blocks(scaling: Scaling, num_rows: int, num_columns: int, columnwise: bool) -> tuple[int, int]:
    """Of a matrix, along its columns and along its rows."""
    if scaling.kind == "tensor":
        return 1, 1
    if scaling.kind == "row":
        return (1, num_columns) if columnwise else (num_rows, 1)
    rows, columns = _block_sides(scaling, num_rows, num_columns, columnwise)
    return -(-num_rows // rows), -(-num_columns // columns)


def _block_sides(scaling: Scaling, num_rows: int, num_columns: int, columnwise: bool) -> tuple[int, int]:
    kind = scaling.kind
    if kind == "tensor":
        return max(num_rows, 1), max(num_columns, 1)
    if kind == "row":
        return (max(num_rows, 1), 1) if columnwise else (1, max(num_columns, 1))
    return (scaling.block[1], scaling.block[0]) if columnwise else scaling.block


def scaled_back(numbers: Tensor, scale_inv: Tensor, scaling: Scaling, columnwise: bool = False) -> Tensor:
    """Numbers of codes times their ``scale_inv``.

    Args:
        numbers: any shape.
        scale_inv: as ``cast`` gives it.
        scaling, columnwise: as ``cast`` was told.
    """
    if scaling.kind == "tensor":
        return numbers * scale_inv
    matrix = as_matrix(numbers)
    rows, columns = _block_sides(scaling, matrix.shape[0], matrix.shape[1], columnwise)
    return _times(matrix, scale_inv, rows, columns).reshape(numbers.shape)


def as_matrix(x: Tensor) -> Tensor:
    """A tensor as a matrix: last dimension by all others; a number is one row and one column."""
    columns = x.shape[-1] if x.dim() else 1
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    return x.reshape(rows, columns)


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
    # Finite where both are: a difference that is not comes of an infinity or a nan on either side.
    error = (dequantized.to(torch.float64) - x).nan_to_num_(0.0, 0.0, 0.0)
    square_error = error.square_().sum()
    num_underflow = ((q == 0) & (x != 0)).sum()  # of an infinity or a nan no scale makes a zero
    numel = torch.full_like(square_error, x.numel())
    cells[:4] += torch.stack([numel, num_underflow.to(torch.float64), over.sum().to(torch.float64), square_error])
    largest = torch.stack([torch.nan_to_num(s, nan=0.0, posinf=torch.inf).amax() for s in (scale, scale_inv)]).to(torch.float64)
    cells[4:] = torch.maximum(cells[4:], largest)


def _largest_of_group(amax: Tensor, group: object) -> Tensor:
    import torch.distributed as dist

    dist.all_reduce(amax, op=dist.ReduceOp.MAX, group=group)
    return amax
