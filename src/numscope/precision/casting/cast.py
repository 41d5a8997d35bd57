"""The one place where tensors are quantized: whatever needs a format's numbers, codes or counts calls ``cast``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from numscope.precision.casting import native_cast, reference_cast
from numscope.precision.casting.hadamard import rotated
from numscope.precision.casting.reference_cast import NUM_CELLS, CastCall, as_matrix, decode, dtype_of, scaled_back
from numscope.precision.casting.scaling import PER_TENSOR, How, Rounding, Scaling
from numscope.records.errors import UsageError
from numscope.records.formats import Format, format_of
from numscope.summary import native as kernel

_num_dispatch_modes = torch._C._len_torch_dispatch_stack
_FLOAT32 = torch.finfo(torch.float32)


@dataclass(slots=True)
class Cast:
    """The result of a cast.

    Args:
        values: dequantized numbers, of the operand's dtype and shape; None if not wanted.
        codes: of ``dtype_of(format)`` and the operand's shape, of the rotated operand if it is rotated; None if not wanted.
        scale_inv: float32 factors of the codes: [] per tensor; [M, 1] per row, [1, K] columnwise; one for each block.
        how: how the operand was quantized.
        columnwise: whether blocks lie along the columns.
    """

    values: Tensor | None
    codes: Tensor | None
    scale_inv: Tensor
    how: How
    columnwise: bool


def empty_cells(device: torch.device | str = "cpu") -> Tensor:
    """Counts of no cast: float64[6] of numel, num_underflow, num_overflow, square_error (which add), largest scale, largest scale_inv."""
    return torch.zeros(NUM_CELLS, dtype=torch.float64, device=device)


def cast(
    x: Tensor,
    how: How,
    *,
    scale: Tensor | float | None = None,
    columnwise: bool = False,
    values: bool = True,
    codes: bool = False,
    cells: Tensor | None = None,
    amax: Tensor | None = None,
    group: object = None,
    generator: torch.Generator | None = None,
) -> Cast:
    """Quantize a tensor.

    ``q = round(x × scale)`` in the format, with the product in float32 (for float64 in float64) and a single rounding. What rounds above
    the format's maximum, infinities included, is counted and becomes the maximum or, without saturation, infinity or NaN. NaN stays NaN.
    In a format without NaN, and under scales that have a format, it makes its block's scale NaN.

    Args:
        x: floating point, any shape, treated as a matrix: last dimension by all others.
        how: format, scaling, rounding.
        scale: float32[] for delayed scaling; None: scales follow from the amaxes of x.
        columnwise: rows and blocks run along the columns, for a GEMM that takes the operand transposed.
        values, codes: whether dequantized numbers and codes are wanted.
        cells: float64[6] on x's device, laid out as ``empty_cells``; the counts are merged into it.
        amax: float32[] on x's device; the largest magnitude is merged into it. NaN is ignored, infinity is not.
        group: process group whose largest amax counts (per-tensor scaling, and NVFP4's outer scale).
        generator: for stochastic rounding.

    Raises: UsageError: x is not a floating-point tensor, or the scale is not one positive number for the whole tensor.

    *Cost:* native (float32, bfloat16, float16 in CPU memory) one pass, or two when scales follow from amaxes. Otherwise see ``reference``.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise UsageError(f"cast: x: got {got}, expected a floating-point torch.Tensor. Convert it: torch.as_tensor(x).float().")
    if scale is not None:
        if how.scaling.kind != "tensor":
            raise UsageError(f"cast: scale: got one for scaling by {how.scaling.kind}, expected None: blocks and rows scale themselves.")
        scale = _one_scale(scale, x.device)
    elif how.delayed:
        raise UsageError("cast: scale: got None for delayed scaling, expected the history's scale.")
    call = CastCall(how, scale, columnwise, values, codes, cells, amax, group, generator)
    with torch.no_grad():
        x = x.detach()
        matrix = reference_cast.as_matrix(x)
        if how.rotation is not None:
            wide = matrix if x.dtype is torch.float64 else matrix.float()
            matrix = rotated(wide, how.rotation, how.rotation_size(columnwise), columnwise=columnwise)
        if matrix.is_cpu:
            matrix = matrix.contiguous()  # a copy costs less than a cast without the kernel, which reads contiguous memory
        made = None
        # A compiler or a dispatch mode (fake tensors, an operation counter) would not see the kernel read memory.
        if not torch.compiler.is_compiling() and not _num_dispatch_modes():
            made = native_cast.cast_matrix(matrix, call)
        if made is None:
            made = reference_cast.cast_matrix(matrix, call)
    numbers, coded, scale_inv = made
    if numbers is not None and how.rotation is not None:
        numbers = rotated(numbers, how.rotation, how.rotation_size(columnwise), columnwise=columnwise, back=True).to(x.dtype)
    return Cast(
        None if numbers is None else numbers.reshape(x.shape), None if coded is None else coded.reshape(x.shape), scale_inv, how, columnwise
    )


def _one_scale(scale: Tensor | float, device: torch.device) -> Tensor:
    if isinstance(scale, Tensor):
        if scale.numel() != 1:
            raise UsageError(f"cast: scale: got a tensor of shape {list(scale.shape)}, expected one number for the whole tensor.")
        return scale
    if not 0 < scale < math.inf:
        raise UsageError(f"cast: scale: got {scale!r}, expected a positive finite number.")
    if not _FLOAT32.smallest_normal <= scale <= _FLOAT32.max:  # else it, or its inverse, would not be a finite float32
        raise UsageError(f"cast: scale: got {scale!r}, expected a number from 2^-126 to float32's maximum.")
    return torch.full((), scale, dtype=torch.float32, device=device)


_DTYPES: Final = frozenset({torch.float32, torch.bfloat16, torch.float16})
_PARALLEL_NUMEL: Final = 65536  # mirrors decode.cpp


def values_of(made: Cast, source: torch.dtype, dtype: torch.dtype) -> Tensor:
    """The numbers of a cast's codes times their scales: bitwise those that the cast itself computes.

    Args:
        made: with codes.
        source: of the tensor that was cast.
        dtype: of the result.

    *Cost:* native (one-byte codes in CPU memory): one read of the codes and one write of the values, two for scaled blocks in another dtype
    than float32. Otherwise several passes.
    """
    codes = made.codes
    assert codes is not None
    if (
        not _num_dispatch_modes()  # they would not see the kernel write memory
        and made.how.rotation is None
        and codes.is_cpu
        and codes.itemsize == 1
        and dtype in _DTYPES
        and source is not torch.float64
        and kernel.module is not None
        and type(codes) is Tensor
        and codes.is_contiguous()
        and codes.numel()
        and made.scale_inv.is_contiguous()
    ):
        return _looked_up(made, codes, dtype)
    numbers = decode(codes, made.how.format)
    if source is torch.float64:
        numbers = numbers.double()
    numbers = scaled_back(numbers, made.scale_inv, made.how.scaling, made.columnwise)
    if (rotation := made.how.rotation) is not None:
        size, matrix = made.how.rotation_size(made.columnwise), as_matrix(numbers)
        numbers = rotated(matrix, rotation, size, columnwise=made.columnwise, back=True).reshape(numbers.shape)
    return numbers.to(dtype)


def _looked_up(made: Cast, codes: Tensor, dtype: torch.dtype) -> Tensor:
    """The same by the kernel, from a table of all codes."""
    assert kernel.module is not None
    scaling = made.how.scaling
    table = _numbers(made.how.format)
    scale_inv = 0
    if scaling.kind == "tensor":
        table = (table * made.scale_inv).to(dtype)
    else:
        scale_inv = made.scale_inv.data_ptr()
    sides = scaling.sides(made.columnwise)
    values = torch.empty(codes.shape, dtype=table.dtype)
    rows, columns = as_matrix(codes).shape
    threads = 1 if codes.numel() < _PARALLEL_NUMEL else torch.get_num_threads()
    kernel.module.cast_decode(
        codes.data_ptr(), rows, columns, table.data_ptr(), table.itemsize, values.data_ptr(), scale_inv, *sides, threads
    )
    return values if values.dtype is dtype else values.to(dtype)


@lru_cache(maxsize=16)
def _numbers(form: Format) -> Tensor:
    """The float32 numbers of all 256 codes."""
    dtype = dtype_of(form)
    codes = torch.arange(256, dtype=torch.uint8)
    if dtype is torch.uint8:
        codes &= (1 << form.bits) - 1
    return decode(codes if dtype is torch.uint8 else codes.view(dtype), form).contiguous()


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantized tensor.

    Args:
        data: codes, of the tensor's shape: the format's torch dtype if it has one, ``uint8`` with one code per element for six and four
            bits, ``float32`` for tf32.
        scale_inv: float32 factors of the codes' numbers: [] per tensor, otherwise one for each row or block.
        format: of the codes.
        scaling: which elements share a scale.
        dtype: of the tensor that was quantized.
        counts: float64[6]: numel, num_underflow, num_overflow, square_error, largest scale, largest scale_inv.
    """

    data: Tensor
    scale_inv: Tensor
    format: Format
    scaling: Scaling
    dtype: torch.dtype
    counts: Tensor

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The codes' numbers times ``scale_inv``.

        Args:
            dtype: of the result; None: that of the tensor that was quantized.
        """
        made = Cast(None, self.data, self.scale_inv, How(self.format, self.scaling), columnwise=False)
        return values_of(made, self.dtype, self.dtype if dtype is None else dtype)

    @property
    def num_underflow(self) -> int:
        """Number of finite non-zero elements that became zero. *Cost:* a host sync for a tensor on a device."""
        return int(self.counts[1])

    @property
    def num_overflow(self) -> int:
        """Number of elements that rounded above the format's maximum, infinities included. *Cost:* as ``num_underflow``."""
        return int(self.counts[2])


def quantize(
    x: Tensor,
    format: str | Format,
    scale: Tensor | float = 1.0,
    rounding: Rounding = "nearest_even",
    saturate: bool = True,
    generator: torch.Generator | None = None,
) -> Quantized:
    """Round ``x × scale`` to a number format.

    Args:
        x: floating point, any shape.
        format: one of ``FORMATS`` or its name; ``e4m3`` is ``e4m3fn``.
        scale: float32[] or a number.
        rounding: ``nearest_even``, or ``stochastic`` to either neighbor, with the nearer one more likely.
        saturate: what rounds above the format's maximum becomes the maximum; else infinity if the format has it, else NaN.
        generator: for stochastic rounding.

    Raises: UsageError: an unknown format or rounding, or ``saturate=False`` for a format without infinity and NaN.
    """
    how = How(format_of(format, "quantize: format"), PER_TENSOR, rounding=rounding, saturate=saturate)
    return _quantize(x, how, scale, generator)


def quantize_current(
    x: Tensor,
    format: str | Format,
    scaling: Scaling = PER_TENSOR,
    margin: int = 0,
    rounding: Rounding = "nearest_even",
    saturate: bool = True,
    generator: torch.Generator | None = None,
) -> Quantized:
    """Round a tensor to a number format, scaled by its own amaxes.

    Args:
        x, format, rounding, saturate, generator: as for ``quantize``.
        scaling: which elements share a scale.
        margin: powers of two left free below the format's maximum.

    Raises: UsageError: as for ``quantize``.
    """
    how = How(format_of(format, "quantize_current: format"), scaling, margin, rounding=rounding, saturate=saturate)
    return _quantize(x, how, None, generator)


def _quantize(x: Tensor, how: How, scale: Tensor | float | None, generator: torch.Generator | None) -> Quantized:
    counts = empty_cells(x.device if isinstance(x, Tensor) else "cpu")
    made = cast(x, how, scale=scale, values=False, codes=True, cells=counts, generator=generator)
    assert made.codes is not None
    return Quantized(made.codes, made.scale_inv, how.format, how.scaling, x.dtype, counts)
