"""How the triton kernel merges rows: a tensor's partial rows in their order, and what comes of it into the tensor's row."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _moved(n, s1, s2, s3, s4, d):
    """Sums about a center that is d lower."""
    stays = (d == 0) | (n == 0)
    fourth = tl.where(stays, s4, s4 + d * (4 * s3 + d * (6 * s2 + d * (4 * s1 + d * n))))
    cube = tl.where(stays, s3, s3 + d * (3 * s2 + d * (3 * s1 + d * n)))
    square = tl.where(stays, s2, s2 + d * (2 * s1 + d * n))
    return tl.where(stays, s1, s1 + d * n), square, cube, fourth


@triton.jit
def merge(row, numel, nan, pos, neg, zero, tiny, low, high, least, most, s1, sa, s2, s3, s4, center, MOMENTS: tl.constexpr):
    """Merges one row's numbers into a row: sums about its center, or about the other's if the row has fewer elements."""
    before, before_nan, before_pos, before_neg = tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3)
    zero += tl.load(row + 4)
    tiny += tl.load(row + 5)
    low = tl.minimum(tl.load(row + 6), low) + 0.0  # -0.0 becomes 0.0
    high = tl.maximum(tl.load(row + 7), high) + 0.0
    least = tl.minimum(tl.load(row + 8), least)
    most = tl.maximum(tl.load(row + 9), most) + 0.0
    if MOMENTS:
        own = tl.load(row + 15)
        b1, b2, b3, b4 = tl.load(row + 10), tl.load(row + 12), tl.load(row + 13), tl.load(row + 14)
        sa += tl.load(row + 11)
    tl.debug_barrier()  # one thread writes what all have read
    tl.store(row, before + numel)
    tl.store(row + 1, before_nan + nan)
    tl.store(row + 2, before_pos + pos)
    tl.store(row + 3, before_neg + neg)
    tl.store(row + 4, zero)
    tl.store(row + 5, tiny)
    tl.store(row + 6, low)
    tl.store(row + 7, high)
    tl.store(row + 8, least)
    tl.store(row + 9, most)
    if MOMENTS:
        n = numel - nan - pos - neg
        n_before = before - before_nan - before_pos - before_neg
        middle = tl.where(n_before < n, center, own)
        if own != center:
            b1, b2, b3, b4 = _moved(n_before, b1, b2, b3, b4, own - middle)
            s1, s2, s3, s4 = _moved(n, s1, s2, s3, s4, center - middle)
        tl.store(row + 10, b1 + s1)
        tl.store(row + 11, sa)
        tl.store(row + 12, b2 + s2)
        tl.store(row + 13, b3 + s3)
        tl.store(row + 14, b4 + s4)
        tl.store(row + 15, middle)


@triton.jit
def _column(parts, stride, index, inside, field: tl.constexpr, empty):
    return tl.load(parts + field * stride + index, mask=inside, other=empty, cache_modifier=".cg")  # other programs wrote it


@triton.jit
def fold(parts, stride, row, num_parts, MOMENTS: tl.constexpr, FOLD: tl.constexpr):
    """Merges partial rows [16, stride] into the row, in their order whoever was the last to write one."""
    infinity = float("inf")
    nothing = tl.zeros([FOLD], tl.float64)
    numel, nan, pos, neg, zero, tiny = nothing, nothing, nothing, nothing, nothing, nothing
    low, high, least, most = nothing + infinity, nothing - infinity, nothing + infinity, nothing - infinity
    s1, sa, s2, s3, s4, first_moment = nothing, nothing, nothing, nothing, nothing, nothing
    leftmost, rightmost = nothing + infinity, nothing - infinity
    for start in range(0, num_parts, FOLD):
        index = start + tl.arange(0, FOLD)
        inside = index < num_parts
        a, b = _column(parts, stride, index, inside, 0, 0.0), _column(parts, stride, index, inside, 1, 0.0)
        c, d = _column(parts, stride, index, inside, 2, 0.0), _column(parts, stride, index, inside, 3, 0.0)
        numel += a
        nan += b
        pos += c
        neg += d
        zero += _column(parts, stride, index, inside, 4, 0.0)
        tiny += _column(parts, stride, index, inside, 5, 0.0)
        low = tl.minimum(low, _column(parts, stride, index, inside, 6, infinity))
        high = tl.maximum(high, _column(parts, stride, index, inside, 7, -infinity))
        least = tl.minimum(least, _column(parts, stride, index, inside, 8, infinity))
        most = tl.maximum(most, _column(parts, stride, index, inside, 9, -infinity))
        if MOMENTS:
            n = a - b - c - d
            t1, center = _column(parts, stride, index, inside, 10, 0.0), _column(parts, stride, index, inside, 15, 0.0)
            s1 += t1
            sa += _column(parts, stride, index, inside, 11, 0.0)
            s2 += _column(parts, stride, index, inside, 12, 0.0)
            s3 += _column(parts, stride, index, inside, 13, 0.0)
            s4 += _column(parts, stride, index, inside, 14, 0.0)
            first_moment += n * center + t1
            leftmost = tl.minimum(leftmost, tl.where(n > 0, center, infinity))
            rightmost = tl.maximum(rightmost, tl.where(n > 0, center, -infinity))
    counts = tl.sum(numel), tl.sum(nan), tl.sum(pos), tl.sum(neg)
    middle = tl.full([], 0.0, tl.float64)
    if MOMENTS:
        num_finite = counts[0] - counts[1] - counts[2] - counts[3]
        left = tl.min(leftmost)
        if num_finite > 0:
            middle = left
        if left < tl.max(rightmost):  # about the mean, where each part was about its own
            middle = tl.sum(first_moment) / num_finite
            s1, s2, s3, s4 = nothing, nothing, nothing, nothing
            for start in range(0, num_parts, FOLD):
                index = start + tl.arange(0, FOLD)
                inside = index < num_parts
                n = _column(parts, stride, index, inside, 0, 0.0) - _column(parts, stride, index, inside, 1, 0.0)
                n -= _column(parts, stride, index, inside, 2, 0.0) + _column(parts, stride, index, inside, 3, 0.0)
                m1, m2, m3, m4 = _moved(
                    n,
                    _column(parts, stride, index, inside, 10, 0.0),
                    _column(parts, stride, index, inside, 12, 0.0),
                    _column(parts, stride, index, inside, 13, 0.0),
                    _column(parts, stride, index, inside, 14, 0.0),
                    _column(parts, stride, index, inside, 15, 0.0) - middle,
                )
                s1 += m1
                s2 += m2
                s3 += m3
                s4 += m4
    merge(
        row, counts[0], counts[1], counts[2], counts[3], tl.sum(zero), tl.sum(tiny), tl.min(low), tl.max(high), tl.min(least), tl.max(most),
        tl.sum(s1), tl.sum(sa), tl.sum(s2), tl.sum(s3), tl.sum(s4), middle, MOMENTS,
    )  # fmt: skip
