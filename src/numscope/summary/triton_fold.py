"""How the triton kernel merges rows: a tensor's partial rows in their order, and the result into the tensor's row."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def row_of(numbers):
    """Sixteen numbers as one row."""
    row = tl.zeros([16], tl.float64)
    for i in tl.static_range(16):
        row = tl.where(tl.arange(0, 16) == i, numbers[i], row)
    return row


@triton.jit
def _at(row, FIELD: tl.constexpr):
    """One number of a row."""
    return tl.sum(tl.where(tl.arange(0, 16) == FIELD, row, 0.0))


@triton.jit
def _num_finite(row):
    return _at(row, 0) - _at(row, 1) - _at(row, 2) - _at(row, 3)


@triton.jit
def _chosen(field, sums, least, most):
    """Minima for the fields that merge by minimum, maxima for those that merge by maximum, sums for the others."""
    return tl.where((field == 6) | (field == 8), least, tl.where((field == 7) | (field == 9), most, sums))


@triton.jit
def _moved(n, s1, s2, s3, s4, d):
    """Sums about a center that is d lower."""
    stays = (d == 0) | (n == 0)
    fourth = tl.where(stays, s4, s4 + d * (4 * s3 + d * (6 * s2 + d * (4 * s1 + d * n))))
    cube = tl.where(stays, s3, s3 + d * (3 * s2 + d * (3 * s1 + d * n)))
    square = tl.where(stays, s2, s2 + d * (2 * s1 + d * n))
    return tl.where(stays, s1, s1 + d * n), square, cube, fourth


@triton.jit
def _with_sums(row, s1, s2, s3, s4):
    field = tl.arange(0, 16)
    row = tl.where(field == 10, s1, tl.where(field == 12, s2, row))
    return tl.where(field == 13, s3, tl.where(field == 14, s4, row))


@triton.jit
def _recentered(row, d):
    """A row with its sums about a center that is d lower."""
    s1, s2, s3, s4 = _moved(_num_finite(row), _at(row, 10), _at(row, 12), _at(row, 13), _at(row, 14), d)
    return _with_sums(row, s1, s2, s3, s4)


@triton.jit
def merge(pointer, row, MOMENTS: tl.constexpr):
    """Merges a row into the one in memory: sums about its center, or about the other's if the row in memory has fewer elements."""
    field = tl.arange(0, 16)
    kept = field < (16 if MOMENTS else 10)
    before = tl.load(pointer + field, mask=kept, other=0.0)
    if MOMENTS:
        own, center = _at(before, 15), _at(row, 15)
        middle = tl.where(_num_finite(before) < _num_finite(row), center, own)
        if own != center:
            before = _recentered(before, own - middle)
            row = _recentered(row, center - middle)
    merged = _chosen(field, before + row, tl.minimum(before, row), tl.maximum(before, row))
    if MOMENTS:
        merged = tl.where(field == 15, middle, merged)
    tl.debug_barrier()  # one thread writes what all have read
    tl.store(pointer + field, merged + 0.0, mask=kept)  # -0.0 becomes 0.0


@triton.jit
def _column(parts, index, inside, FIELD: tl.constexpr):
    return tl.load(parts + index * 16 + FIELD, mask=inside, other=0.0, cache_modifier=".cg")  # other programs wrote it


@triton.jit
def _sums(parts, index, inside):
    """The number of finite elements, their sums, and the center of each partial row."""
    n = _column(parts, index, inside, 0) - _column(parts, index, inside, 1)
    n -= _column(parts, index, inside, 2) + _column(parts, index, inside, 3)
    s1, s2 = _column(parts, index, inside, 10), _column(parts, index, inside, 12)
    return n, s1, s2, _column(parts, index, inside, 13), _column(parts, index, inside, 14), _column(parts, index, inside, 15)


@triton.jit
def fold(parts, pointer, num_parts, MOMENTS: tl.constexpr, FOLD: tl.constexpr):
    """Merges partial rows into the row in memory, in their order, whichever program wrote the last one."""
    infinity = float("inf")
    nothing = tl.zeros([FOLD], tl.float64)
    field = tl.arange(0, 16)[None, :]
    empty = _chosen(field, 0.0, infinity, -infinity) + tl.zeros([FOLD, 16], tl.float64)
    found = empty
    first_moment, leftmost, rightmost = nothing, nothing + infinity, nothing - infinity
    for start in range(0, num_parts, FOLD):
        index = start + tl.arange(0, FOLD)
        inside = index < num_parts
        rows = tl.load(parts + index[:, None] * 16 + field, mask=inside[:, None], other=empty, cache_modifier=".cg")
        found = _chosen(field, found + rows, tl.minimum(found, rows), tl.maximum(found, rows))
        if MOMENTS:
            n, s1, _, _, _, center = _sums(parts, index, inside)
            first_moment += n * center + s1
            leftmost = tl.minimum(leftmost, tl.where(n > 0, center, infinity))
            rightmost = tl.maximum(rightmost, tl.where(n > 0, center, -infinity))
    row = _chosen(tl.arange(0, 16), tl.sum(found, 0), tl.min(found, 0), tl.max(found, 0))
    if MOMENTS:
        left, num_finite = tl.min(leftmost), _num_finite(row)
        middle = tl.where(num_finite > 0, left, 0.0)
        if left < tl.max(rightmost):  # about the mean, where each part was about its own
            middle = tl.sum(first_moment) / num_finite
            t1, t2, t3, t4 = nothing, nothing, nothing, nothing
            for start in range(0, num_parts, FOLD):
                index = start + tl.arange(0, FOLD)
                n, s1, s2, s3, s4, center = _sums(parts, index, index < num_parts)
                s1, s2, s3, s4 = _moved(n, s1, s2, s3, s4, center - middle)
                t1 += s1
                t2 += s2
                t3 += s3
                t4 += s4
            row = _with_sums(row, tl.sum(t1), tl.sum(t2), tl.sum(t3), tl.sum(t4))
        row = tl.where(tl.arange(0, 16) == 15, middle, row)
    merge(pointer, row, MOMENTS)
