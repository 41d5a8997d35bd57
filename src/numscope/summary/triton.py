"""Summaries on CUDA and ROCm devices in three launches, without a sync.

Not yet run on hardware: its numbers were verified only by triton's interpreter on a CPU, its speed not at all.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from numscope.summary.state import ROW_WIDTH, Groups

MAX_PROGRAMS = 1024  # enough to fill any device; each writes one partial row
BLOCK = 2048
CENTER_SAMPLE = 8  # mirrors csrc/summary.h

SMALLEST_NORMAL = {
    dtype: torch.finfo(dtype).smallest_normal
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
}


@triton.jit
def _summarize_part(
    x_ptr,
    parts_ptr,
    numel,
    smallest_normal,
    num_blocks_each,
    MOMENTS: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    SAMPLE: tl.constexpr,
):
    """Summarizes one program's share of the elements into one partial row."""
    infinity = float("inf")
    program = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    num_nan = tl.zeros([BLOCK], tl.int32)  # lanes count on their own; one sum at the end
    num_pos_inf = tl.zeros([BLOCK], tl.int32)
    num_neg_inf = tl.zeros([BLOCK], tl.int32)
    num_zero = tl.zeros([BLOCK], tl.int32)
    num_subnormal = tl.zeros([BLOCK], tl.int32)
    kind = tl.float64 if WIDE else tl.float32
    lowest = tl.full([BLOCK], infinity, kind)
    highest = tl.full([BLOCK], -infinity, kind)
    smallest = tl.full([BLOCK], infinity, kind)
    total = tl.zeros([BLOCK], tl.float64)
    abs_total = tl.zeros([BLOCK], tl.float64)
    squares = tl.zeros([BLOCK], tl.float64)
    cubes = tl.zeros([BLOCK], tl.float64)
    fourths = tl.zeros([BLOCK], tl.float64)
    # The provisional center of csrc/summary.h, of this program's share.
    start = program * num_blocks_each * BLOCK
    count = tl.minimum(tl.maximum(numel - start, 0), num_blocks_each * BLOCK)
    places = tl.arange(0, SAMPLE) * tl.maximum(count // SAMPLE, 1)
    drawn = tl.load(x_ptr + start + places, mask=places < count, other=infinity).to(tl.float64)
    known = tl.abs(drawn) < infinity
    low = tl.min(tl.where(known, drawn, infinity))
    high = tl.max(tl.where(known, drawn, -infinity))
    is_close = ((low > 0) & (high * 0.5 <= low)) | ((high < 0) & (low * 0.5 >= high))
    center = tl.where(is_close & (high >= low), tl.where(low > 0, low, high), 0.0)
    for i in range(num_blocks_each):
        offsets = (program * num_blocks_each + i) * BLOCK + lanes
        inside = offsets < numel
        x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(kind)
        magnitude = tl.abs(x)
        finite = inside & (magnitude < infinity)  # a nan is below nothing
        nonzero = finite & (magnitude > 0)
        num_nan += (inside & (x != x)).to(tl.int32)
        num_pos_inf += (inside & (x == infinity)).to(tl.int32)
        num_neg_inf += (inside & (x == -infinity)).to(tl.int32)
        num_zero += (inside & (x == 0)).to(tl.int32)
        num_subnormal += (nonzero & (magnitude < smallest_normal)).to(tl.int32)
        lowest = tl.minimum(lowest, tl.where(finite, x, infinity))
        highest = tl.maximum(highest, tl.where(finite, x, -infinity))
        smallest = tl.minimum(smallest, tl.where(nonzero, magnitude, infinity))
        if MOMENTS:
            wide = x.to(tl.float64)
            y = tl.where(finite, wide - center, 0.0)
            square = y * y
            total += y
            abs_total += tl.where(finite, tl.abs(wide), 0.0)
            squares += square
            cubes += square * y
            fourths += square * square
    row = parts_ptr + program * 16
    tl.store(row, count.to(tl.float64))
    tl.store(row + 1, tl.sum(num_nan.to(tl.int64)).to(tl.float64))
    tl.store(row + 2, tl.sum(num_pos_inf.to(tl.int64)).to(tl.float64))
    tl.store(row + 3, tl.sum(num_neg_inf.to(tl.int64)).to(tl.float64))
    tl.store(row + 4, tl.sum(num_zero.to(tl.int64)).to(tl.float64))
    tl.store(row + 5, tl.sum(num_subnormal.to(tl.int64)).to(tl.float64))
    least = tl.min(lowest)
    most = tl.max(highest)
    tl.store(row + 6, least.to(tl.float64))
    tl.store(row + 7, most.to(tl.float64))
    tl.store(row + 8, tl.min(smallest).to(tl.float64))
    tl.store(row + 9, tl.maximum(-least, most).to(tl.float64))
    tl.store(row + 10, tl.sum(total))
    tl.store(row + 11, tl.sum(abs_total))
    tl.store(row + 12, tl.sum(squares))
    tl.store(row + 13, tl.sum(cubes))
    tl.store(row + 14, tl.sum(fourths))
    tl.store(row + 15, center if MOMENTS else 0.0)


@triton.jit
def _moved(n, s1, s2, s3, s4, d):
    """Sums about a center that is d lower."""
    stays = (d == 0) | (n == 0)
    fourth = tl.where(stays, s4, s4 + d * (4 * s3 + d * (6 * s2 + d * (4 * s1 + d * n))))
    cube = tl.where(stays, s3, s3 + d * (3 * s2 + d * (3 * s1 + d * n)))
    square = tl.where(stays, s2, s2 + d * (2 * s1 + d * n))
    return tl.where(stays, s1, s1 + d * n), square, cube, fourth


@triton.jit
def _num_finite(row, inside):
    counts = tl.load(row, mask=inside, other=0.0) - tl.load(row + 1, mask=inside, other=0.0)
    return counts - tl.load(row + 2, mask=inside, other=0.0) - tl.load(row + 3, mask=inside, other=0.0)


@triton.jit
def _fold_sums(parts_ptr, row_ptr, num_parts, PARTS: tl.constexpr):
    """Merges the partial rows' sums into the row: about its center, or that of the first part with elements if the row has fewer."""
    index = tl.arange(0, PARTS)
    inside = index < num_parts
    rows = parts_ptr + index * 16
    n = _num_finite(rows, inside)
    centers = tl.load(rows + 15, mask=inside, other=0.0)
    first = tl.min(tl.where(n > 0, index, PARTS))
    always = tl.full([], 1, tl.int1)
    num_before = _num_finite(row_ptr, always)
    own = tl.load(row_ptr + 15)
    center = tl.where(num_before < tl.sum(n), tl.sum(tl.where(index == first, centers, 0.0)), own)
    s1, s2, s3, s4 = _moved(
        n,
        tl.load(rows + 10, mask=inside, other=0.0),
        tl.load(rows + 12, mask=inside, other=0.0),
        tl.load(rows + 13, mask=inside, other=0.0),
        tl.load(rows + 14, mask=inside, other=0.0),
        centers - center,
    )
    b1, b2, b3, b4 = _moved(
        num_before, tl.load(row_ptr + 10), tl.load(row_ptr + 12), tl.load(row_ptr + 13), tl.load(row_ptr + 14), own - center
    )
    tl.store(row_ptr + 10, b1 + tl.sum(s1))
    tl.store(row_ptr + 12, b2 + tl.sum(s2))
    tl.store(row_ptr + 13, b3 + tl.sum(s3))
    tl.store(row_ptr + 14, b4 + tl.sum(s4))
    tl.store(row_ptr + 15, center)


@triton.jit
def _fold(parts_ptr, row_ptr, num_parts, PARTS: tl.constexpr):
    """Merges the partial rows' counts, extrema and sum of magnitudes into the row, one program per field."""
    field = tl.program_id(0)
    field = tl.where(field == 10, 11, field)
    parts = tl.arange(0, PARTS)
    inside = parts < num_parts
    so_far = tl.load(row_ptr + field)
    if (field == 6) | (field == 8):
        values = tl.load(parts_ptr + parts * 16 + field, mask=inside, other=float("inf"))
        tl.store(row_ptr + field, tl.minimum(so_far, tl.min(values)) + 0.0)
    elif (field == 7) | (field == 9):
        values = tl.load(parts_ptr + parts * 16 + field, mask=inside, other=float("-inf"))
        tl.store(row_ptr + field, tl.maximum(so_far, tl.max(values)) + 0.0)
    else:
        values = tl.load(parts_ptr + parts * 16 + field, mask=inside, other=0.0)
        tl.store(row_ptr + field, so_far + tl.sum(values))


def observe_into(tensor: Tensor, row: Tensor, groups: int) -> None:
    """Merge a tensor's summary into a row on its device.

    Args:
        tensor: contiguous, of a dtype in ``SMALLEST_NORMAL``.
        row: float64[16] on the same device.
        groups: which fields to compute.

    *Cost:* one pass over memory, three launches (two without sums), 128 bytes of scratch memory per program; no host sync. Sums are
    float64.
    """
    numel = tensor.numel()
    if numel == 0:
        return
    num_blocks = triton.cdiv(numel, BLOCK)
    num_programs = min(num_blocks, MAX_PROGRAMS)
    num_blocks_each = triton.cdiv(num_blocks, num_programs)
    num_programs = triton.cdiv(num_blocks, num_blocks_each)
    parts = torch.empty((num_programs, ROW_WIDTH), dtype=torch.float64, device=tensor.device)
    summarize_part: Any = _summarize_part
    fold: Any = _fold
    fold_sums: Any = _fold_sums
    summarize_part[(num_programs,)](
        tensor,
        parts,
        numel,
        SMALLEST_NORMAL[tensor.dtype],
        num_blocks_each,
        MOMENTS=bool(groups & Groups.MOMENTS),
        WIDE=tensor.dtype is torch.float64,
        BLOCK=BLOCK,
        SAMPLE=CENTER_SAMPLE,
    )
    num_parts = triton.next_power_of_2(num_programs)
    if groups & Groups.MOMENTS:
        fold_sums[(1,)](parts, row, num_programs, PARTS=num_parts)  # before the row's counts change
    fold[(11,)](parts, row, num_programs, PARTS=num_parts)
