"""The one place where tensors are quantized: everything that needs a format's numbers, codes or counts calls ``cast``."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from numscope.precision.casting import native, reference
from numscope.precision.casting.reference import NUM_CELLS, decode, dtype_of
from numscope.precision.casting.scaling import How
from numscope.records.errors import UsageError

__all__ = ["NUM_CELLS", "Cast", "cast", "decode", "dtype_of", "empty_cells"]

_num_dispatch_modes = torch._C._len_torch_dispatch_stack
_FLOAT32 = torch.finfo(torch.float32)


@dataclass(slots=True)
class Cast:
    """What came of a cast.

    Args:
        values: dequantized, of the operand's dtype and shape; None where they were not asked for.
        codes: of ``dtype_of(format)`` and the operand's shape; None where they were not asked for.
        scale_inv: float32, what codes are multiplied by: [] per tensor; [M, 1] per row, [1, K] columnwise; of blocks one each.
        how: as it was asked for.
        columnwise: whether blocks lie along the columns.
    """

    values: Tensor | None
    codes: Tensor | None
    scale_inv: Tensor
    how: How
    columnwise: bool


def empty_cells(device: torch.device | str = "cpu") -> Tensor:
    """Cells that nothing was counted into: numel, num_underflow, num_overflow, square_error, which add; largest scale, largest scale_inv.

    Args:
        device: of the tensors that are to be counted.
    """
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

    ``q = round(x × scale)`` in the format, with the product in float32 (of float64 in float64) and one rounding. NaN stays NaN; of a
    format without NaN, and under scales that have a format, it makes its block's scale NaN. What rounds above the format's maximum,
    infinities included, is counted and becomes the maximum, or, not saturating, infinity or NaN.

    Args:
        x: floating-point, any shape: a matrix of its last dimension by all others.
        how: format, scaling, rounding.
        scale: float32[], given (delayed scaling); None: from the amaxes at hand.
        columnwise: rows and blocks lie along the columns, as an operand has them that a GEMM takes transposed.
        values: whether dequantized numbers are wanted.
        codes: whether codes are wanted.
        cells: float64[6] on x's device that counts are merged into, as ``empty_cells`` has them.
        amax: float32[] on x's device that the largest magnitude is merged into; NaN is passed over, infinity is not.
        group: process group whose largest amax counts (per-tensor scaling and NVFP4's outer scale).
        generator: of stochastic rounding.

    Returns:
        What was wanted.

    Raises:
        UsageError: of what is no floating-point tensor, of a scale that is no positive number, and of a scale for blocks.

    *Cost:* native (float32, bfloat16, float16 in CPU memory): one pass, with scales from the amaxes at hand two. Else see ``reference``.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise UsageError(f"cast: x: got {got}, expected a floating-point torch.Tensor. Make one of it with torch.as_tensor(x).float().")
    if scale is not None:
        if how.scaling.kind != "tensor":
            raise UsageError(f"cast: scale: got one for scaling by {how.scaling.kind}, expected None: blocks and rows scale themselves.")
        scale = _one_scale(scale, x.device)
    elif how.delayed:
        raise UsageError("cast: scale: got None for delayed scaling, expected the history's scale.")
    with torch.no_grad():
        x = x.detach()
        matrix = reference.as_matrix(x)
        if matrix.is_cpu:
            matrix = matrix.contiguous()  # a copy costs less than casting where the kernel can't read
        made = None
        # The kernel reads memory that a compiler or a dispatch mode (fake tensors, an operation counter) does not see it read.
        if not torch.compiler.is_compiling() and not _num_dispatch_modes():
            made = native.cast_matrix(matrix, how, scale, columnwise, values, codes, cells, amax, group)
        if made is None:
            made = reference.cast_matrix(matrix, how, scale, columnwise, values, codes, cells, amax, group, generator)
    numbers, coded, scale_inv = made
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
