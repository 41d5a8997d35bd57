"""Quantization by the compiled kernel: the same numbers as the reference, bit for bit, in one pass over CPU memory."""

from __future__ import annotations

import math
import struct
from array import array
from functools import lru_cache

import torch
from torch import Tensor

from numscope.precision.casting.reference_cast import NUM_CELLS, CastCall, dtype_of, largest_of_group, num_blocks
from numscope.precision.casting.scaling import How, scale_of
from numscope.records.formats import Format
from numscope.summary import native

_DTYPES = {dtype: native.CODES[dtype] for dtype in (torch.float32, torch.bfloat16, torch.float16)}
_SCALE_KINDS = {(None, "floor"): 0, ("e8m0", "floor"): 1, ("e4m3fn", "floor"): 2, ("e8m0", "rceil"): 3}  # mirrors csrc/quantize.h
_PARALLEL_NUMEL = 65536  # mirrors quantize.cpp
_function_mode_on = torch._C._is_torch_function_mode_enabled


def cast_matrix(x: Tensor, call: CastCall) -> tuple[Tensor | None, Tensor | None, Tensor] | None:
    """``reference_cast.cast_matrix`` by the kernel; None if the kernel does not have this cast.

    The code of a NaN in formats with several may differ from the reference, and the last bits of the square error, whose sum has another
    order.

    *Cost:* one read of x, or two if the elements that share a scale do not fit the cache (per tensor, per column, NVFP4's outer scale), one
    write of each wanted output, and 4 µs per call.
    """
    how, scale, columnwise, want_values, want_codes, cells, amax, group, _ = call
    is_served = (
        native.module is not None
        and (type(x) is Tensor and x.dtype in _DTYPES and x.is_cpu and x.numel() > 0 and not x.is_neg())
        and (how.rounding == "nearest_even" and how.format.name != "e8m0fnu")
        and (group is None or how.scaling.scale_format != "e4m3fn")
        and not _function_mode_on()
        and all(t is None or (t.is_cpu and t.is_contiguous()) for t in (scale, cells, amax))
        # else the kernel would write float64[6] and float32[] over whatever is there
        and (cells is None or (cells.dtype is torch.float64 and cells.numel() == NUM_CELLS))
        and (amax is None or amax.dtype is torch.float32)
    )
    if not is_served or native.module is None:
        return None
    rows, columns = x.shape
    x = x.contiguous()
    code, address = _DTYPES[x.dtype], x.data_ptr()
    if not address:
        return None
    threads = 1 if x.numel() < _PARALLEL_NUMEL else torch.get_num_threads()
    kind = how.scaling.kind
    if scale is None and group is not None and kind == "tensor":
        whole = largest_of_group(torch.tensor(native.module.cast_amax(address, x.numel(), code, threads), dtype=torch.float32), group)
        scale = scale_of(whole, how.format.max, how.margin, how.scaling.power_of_two)
    if scale is not None and scale.dtype is not torch.float32:
        scale = scale.to(torch.float32)
    spec = _spec(how, columnwise)
    scale_inv = torch.empty(() if kind == "tensor" else num_blocks(how.scaling.sides(columnwise), x), dtype=torch.float32)
    values = torch.empty_like(x) if want_values else None
    codes = torch.empty(x.shape, dtype=dtype_of(how.format)) if want_codes else None
    done = native.module.cast_quantize(
        address,
        rows,
        columns,
        code,
        spec.buffer_info()[0],
        0 if scale is None else scale.data_ptr(),
        0 if values is None else values.data_ptr(),
        0 if codes is None else codes.data_ptr(),
        scale_inv.data_ptr(),
        0 if cells is None else cells.data_ptr(),
        0 if amax is None else amax.data_ptr(),
        threads,
    )
    return (values, codes, scale_inv) if done else None


@lru_cache(maxsize=256)
def _spec(how: How, columnwise: bool) -> array[int]:
    """The fields of ``struct QuantizeSpec`` in csrc/quantize.h."""
    form, scaling = how.format, how.scaling
    packed = struct.pack(
        "=2q3d12q",
        form.fraction_bits,
        form.min_exponent,
        form.max,
        _least_over(form),
        form.max if how.saturate else math.inf if form.has_inf else math.nan,
        form.signed_zero,
        _code_of(form, math.inf) if form.has_inf else 0,
        _code_of(form, math.nan) if form.has_nan else 0,
        0 if not form.exponent_bits else 1 << (form.bits - 1),
        1 << (form.bits - 1) if form.has_nan else 0,
        1 if form.bits <= 8 else 2 if form.bits <= 16 else 4,
        _SCALE_KINDS[scaling.scale_format, scaling.e8m0_rounding],
        scaling.power_of_two,
        how.margin,
        not form.has_nan or scaling.scale_format is not None,
        *scaling.sides(columnwise),
    )
    return array("q", packed)


def _least_over(form: Format) -> float:
    """The smallest float32 that rounds above the format's maximum."""
    limit = torch.tensor(form.overflow_limit, dtype=torch.float64)
    nearest = limit.to(torch.float32)
    over = nearest >= limit if form.limit_overflows else nearest > limit
    return float(nearest if over else torch.nextafter(nearest, torch.tensor(math.inf)))


def _code_of(form: Format, number: float) -> int:
    """The code of inf or nan, without its sign."""
    dtype = dtype_of(form)
    if form.bits > 16:
        return 0
    code = torch.tensor(number).to(dtype).view(torch.uint8 if form.bits == 8 else torch.int16)
    if form.signed_zero:
        return int(code) & ((1 << (form.bits - 1)) - 1)
    return int(code)
