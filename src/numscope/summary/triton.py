"""Summaries on CUDA and ROCm devices: any number of tensors in one launch and one pass, without a sync.

The sums of a float64 tensor are float64. All others are float32 sums of short chains, which are folded in float64: each is right to 2^-16
of the magnitudes added, and mostly to 2^-22. Deviations are taken from a center that is checked in the kernel, and are scaled by a power of
two, so that no fourth power overflows or vanishes; a program whose share does not fit the sampled center and scale reads it again. So
``std``, ``kurtosis`` and ``l2_norm`` are right to a thousandth, and ``skewness`` to a thousandth of max(1, abs(skewness)), as ``Summary``
says.

Tests run it in triton's interpreter, compile it for real devices, and run it where there is one. docs/gpu.md says what a device has shown.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl

from numscope.summary.triton_fold import fold, merge

LANES = 128  # of a program; each counts on its own
CHUNK = 8  # tiles after which lanes ask each other whether a number must be looked at again
FLUSH = 8  # chunks after which float32 sums move to float64
FOLD = 128  # partial rows that are folded at a time
SAMPLE = 32  # elements by which center and scale are chosen
SLOTS = 4  # tensors whose places travel as arguments; those of more lie in a table
_NUMBERS = "table programs parts counters tiles_each".split() + [
    f"{name}{slot}" for slot in range(SLOTS) for name in ("address", "row", "numel", "kind")
]

_SMALLEST_NORMAL = tl.constexpr((2.0**-126, 2.0**-1022, 2.0**-126, 2.0**-14, 2.0**-6, 2.0**-14, 2.0**-7, 2.0**-15))
_BYTES = tl.constexpr((4, 8, 2, 2, 1, 1, 1, 1))  # of an element, by code, as in native.CODES
_TILE = tl.constexpr((16, 4, 16, 16, 16, 16, 16, 16))  # elements of a lane in a tile
_NUM_KINDS = tl.constexpr(8)


@triton.jit
def _greater_or_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _pointer(address, KIND: tl.constexpr):
    if KIND == 0:
        return address.to(tl.pointer_type(tl.float32))
    elif KIND == 1:
        return address.to(tl.pointer_type(tl.float64))
    elif KIND == 2:
        return address.to(tl.pointer_type(tl.bfloat16))
    elif KIND == 3:
        return address.to(tl.pointer_type(tl.float16))
    else:
        return address.to(tl.pointer_type(tl.int8))


@triton.jit
def _values(raw, KIND: tl.constexpr):
    """Elements as float32; those of float64 as they are. Not every device can convert every fp8 format, so bits are moved by hand."""
    if KIND == 1:
        return raw
    elif KIND == 5:
        return (raw.to(tl.int16) << 8).to(tl.float16, bitcast=True).to(tl.float32)
    elif KIND >= 4:
        SHIFT: tl.constexpr = 3 if KIND == 7 else 4
        KEPT: tl.constexpr = -0x70200000 if KIND == 7 else -0x78100000  # 0x8FE00000, 0x87F00000: sign, exponent, mantissa
        SCALE: tl.constexpr = 2.0**120 if KIND == 4 else (2.0**119 if KIND == 6 else 2.0**111)
        wide = raw.to(tl.int32)
        value = (((wide << 24) >> SHIFT) & KEPT).to(tl.float32, bitcast=True) * SCALE
        if KIND == 4:
            return tl.where((wide & 0x7F) == 0x7F, float("nan"), value)
        else:
            return tl.where(wide == -128, float("nan"), value)
    else:
        return raw.to(tl.float32)


@triton.jit
def _within(x):
    """The sum over a lane's own elements: [L, V] to [L]."""
    return tl.sum(x, 1)


@triton.jit
def _place(index, cols, row_stride, col_stride, STRIDED: tl.constexpr):
    """Where an element lies, counted in elements."""
    if STRIDED:
        row = index // cols
        return row * row_stride + (index - row * cols) * col_stride
    else:
        return index


@triton.jit
def _power_of_two(exponent):
    """float32, within 2^-126 to 2^126."""
    return ((tl.minimum(tl.maximum(exponent, -126), 126) + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _exponent(x):
    """floor(log2(x)) of a float32; -127 of zero and subnormals."""
    return ((x.to(tl.int32, bitcast=True) >> 23) & 0xFF) - 127


@triton.jit
def _sampled(address, numel, cols, row_stride, col_stride, KIND: tl.constexpr, STRIDED: tl.constexpr, SAMPLE: tl.constexpr):
    """A scale for the deviations and the scaled center: 0, or the sample's mean where that exceeds the deviation."""
    index = tl.arange(0, SAMPLE) * tl.maximum(numel // SAMPLE, 1)
    places = _place(index, cols, row_stride, col_stride, STRIDED)
    x = _values(tl.load(_pointer(address, KIND) + places, mask=index < numel, other=0.0), KIND)
    known = (index < numel) & (tl.abs(x) < float("inf"))
    count = tl.maximum(tl.sum(known.to(tl.int32)), 1).to(tl.float32)
    x = tl.where(known, x, 0.0)
    if KIND == 1:
        scale = tl.sum(x) * 0.0 + 1.0
        z = x
    else:
        most = tl.max(tl.abs(x))
        scale = tl.where(most > 0, _power_of_two(-_exponent(most)), 1.0)
        z = x * scale
    mean = tl.sum(z) / count
    deviation = tl.where(known, z - mean, 0.0)
    spread = tl.sum(deviation * deviation) / count
    shift = tl.where(mean * mean > spread, mean, mean * 0.0)
    if KIND == 1:
        return scale, shift
    else:
        reach = tl.max(tl.where(known, tl.abs(z - shift), 0.0))
        finer = tl.where(reach > 0, _power_of_two(tl.minimum(-_exponent(reach), 126 - _exponent(scale))), 1.0)
        return scale * finer, shift * finer


@triton.jit
def _vectors(
    address, start, cols, row_stride, col_stride, inside,
    KIND: tl.constexpr, STRIDED: tl.constexpr, L: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """A vector of V neighbors for each lane [L, V], as they are stored; those that are not inside (None: all are) are zero.

    Two dimensions, since of three not every version of triton gives a lane its own.
    """
    vector = tl.arange(0, L)[:, None]
    pointer = _pointer(address, KIND)
    if STRIDED:
        places = _place(
            (start.to(tl.uint32) + vector.to(tl.uint32)) * V, cols.to(tl.uint32), row_stride.to(tl.uint32), col_stride.to(tl.uint32), True
        )
    else:
        pointer += start * V
        places = vector * V
    if V > 1:
        pointer = tl.multiple_of(pointer, 16)
        places = tl.multiple_of(places, [1, V])
    pointers = pointer + (places + tl.arange(0, V)[None, :])
    if inside is None:
        return tl.load(pointers)
    else:
        return tl.load(pointers, mask=inside, other=0)


@triton.jit
def _with_specials(
    x, inside, scale, shift, nan, pos, neg, zero, tiny, low, high, least, s1, sa, s2, s3, s4, SMALLEST: tl.constexpr, MOMENTS: tl.constexpr
):
    """Adds any elements [L, V] to what their lanes have. Those that are not inside are zero."""
    infinity = float("inf")
    magnitude = tl.abs(x)
    finite = inside & (magnitude < infinity)
    nan += _within((x != x).to(tl.int32))
    pos += _within((x == infinity).to(tl.int32))
    neg += _within((x == -infinity).to(tl.int32))
    zero += _within((inside & (x == 0)).to(tl.int32))
    tiny += _within(((magnitude < SMALLEST) & (x != 0)).to(tl.int32))
    low = tl.minimum(low, tl.min(tl.where(finite, x, infinity), 1))
    high = tl.maximum(high, tl.max(tl.where(finite, x, -infinity), 1))
    least = tl.minimum(least, tl.min(tl.where(finite & (x != 0), magnitude, infinity), 1))
    if MOMENTS:
        z = x * scale
        y = tl.where(finite, z - shift, 0.0)
        square = y * y
        s1 += _within(y)
        sa += _within(tl.where(finite, tl.abs(z), 0.0))
        s2 += _within(square)
        s3 += _within(square * y)
        s4 += _within(square * square)
    return nan, pos, neg, zero, tiny, low, high, least, s1, sa, s2, s3, s4


@triton.jit
def _share(
    address, numel, cols, row_stride, col_stride, part, tiles_each,
    KIND: tl.constexpr, MOMENTS: tl.constexpr, STRIDED: tl.constexpr, VECTORS: tl.constexpr,
    L: tl.constexpr, CHUNK: tl.constexpr, FLUSH: tl.constexpr, SAMPLE: tl.constexpr,
):  # fmt: skip
    """The row of one program's share of a tensor, as 16 float64."""
    infinity = float("inf")
    BYTES: tl.constexpr = _BYTES[KIND]
    SMALLEST: tl.constexpr = _SMALLEST_NORMAL[KIND]
    V: tl.constexpr = 16 // BYTES if VECTORS else 1
    C: tl.constexpr = _TILE[KIND] // V
    wide = tl.float64 if KIND == 1 else tl.float32
    head = numel * 0 if STRIDED else tl.minimum((-address & 15) // BYTES, numel)  # before the first that is aligned
    num_vectors = (numel - head) // V
    num_ends = tl.where(part == 0, numel - num_vectors * V, 0).to(tl.int32)
    start = part * tiles_each * (C * L)
    end = tl.minimum(start + tiles_each * (C * L), num_vectors)
    whole = start + tl.maximum(end - start, 0) // (C * L) * (C * L)  # the end of the last tile without a gap
    count = (tl.maximum(end - start, 0) * V + num_ends).to(tl.float64)
    body = address + head * BYTES
    none = tl.zeros([L], tl.int32)
    nothing = tl.zeros([L], wide)
    each = tl.zeros([L, V], wide)
    zero64 = tl.full([], 0.0, tl.float64)
    scale = tl.full([], 1.0, wide)
    shift = tl.full([], 0.0, wide)
    if MOMENTS:
        scale, shift = _sampled(address, numel, cols, row_stride, col_stride, KIND, STRIDED, SAMPLE)
    nan, pos, neg, zero, tiny = none, none, none, none, none
    low, high, least = nothing + infinity, nothing - infinity, nothing + infinity
    d1, da, d2, d3, d4 = zero64, zero64, zero64, zero64, zero64
    tries = 4
    while tries > 0:
        tries -= 1
        nan, pos, neg, zero, tiny = none, none, none, none, none
        low, high, least = nothing + infinity, nothing - infinity, nothing + infinity
        s1, sa, s2, s3, s4 = nothing, nothing, nothing, nothing, nothing
        d1, da, d2, d3, d4 = zero64, zero64, zero64, zero64, zero64
        if num_ends > 0:
            lane = tl.arange(0, L)[:, None]
            place = tl.where(lane < head, lane, lane + num_vectors * V)
            x = _values(tl.load(_pointer(address, KIND) + place, mask=lane < num_ends, other=0), KIND)
            nan, pos, neg, zero, tiny, low, high, least, s1, sa, s2, s3, s4 = _with_specials(
                x, lane < num_ends, scale, shift, nan, pos, neg, zero, tiny, low, high, least, s1, sa, s2, s3, s4, SMALLEST, MOMENTS
            )
        at = start
        unflushed = 0
        while at < end:
            here = at
            stop = tl.where(at < whole, tl.minimum(at + CHUNK * C * L, whole), end)
            unflushed += 1
            lowest, highest, smallest = each + infinity, each - infinity, each + infinity
            t1, ta, t2, t3, t4 = nothing, nothing, nothing, nothing, nothing
            while at < tl.minimum(stop, whole):
                for c in tl.static_range(C):
                    x = _values(_vectors(body, at + c * L, cols, row_stride, col_stride, None, KIND, STRIDED, L, V), KIND)
                    highest = _greater_or_nan(highest, x)
                    lowest = tl.minimum(lowest, x)
                    smallest = tl.minimum(smallest, tl.abs(x))
                    if MOMENTS:
                        z = x * scale
                        y = z - shift
                        square = y * y
                        t1 += _within(y)
                        ta += _within(tl.abs(z))
                        t2 += _within(square)
                        t3 += _within(square * y)
                        t4 += _within(square * square)
                at += C * L
            at = stop
            finite = (highest < infinity) & (lowest > -infinity) & (here < whole)
            worst = tl.max(tl.max(tl.where(finite, (smallest < SMALLEST).to(tl.int32), 2), 1))
            counted = tl.where(worst == 1, stop, here)
            taken = worst < 2
            low = tl.minimum(low, tl.where(taken, tl.min(lowest, 1), infinity))
            high = tl.maximum(high, tl.where(taken, tl.max(highest, 1), -infinity))
            if MOMENTS:
                s1 += tl.where(taken, t1, 0.0)
                sa += tl.where(taken, ta, 0.0)
                s2 += tl.where(taken, t2, 0.0)
                s3 += tl.where(taken, t3, 0.0)
                s4 += tl.where(taken, t4, 0.0)
            smallest = tl.where(worst == 0, smallest, infinity)
            again = here
            while again < counted:  # from the cache: zeros and subnormal numbers are counted
                for c in tl.static_range(C):
                    x = _values(_vectors(body, again + c * L, cols, row_stride, col_stride, None, KIND, STRIDED, L, V), KIND)
                    zero += _within((x == 0).to(tl.int32))
                    tiny += _within(((tl.abs(x) < SMALLEST) & (x != 0)).to(tl.int32))
                    smallest = tl.minimum(smallest, tl.where(x == 0, infinity, tl.abs(x)))
                again += C * L
            least = tl.minimum(least, tl.min(smallest, 1))
            here = tl.where(worst == 2, here, stop)
            while here < stop:  # from the cache, where a number is not finite or the tile has a gap
                inside = tl.arange(0, L)[:, None] < (stop - here).to(tl.int32)
                x = _values(_vectors(body, here, cols, row_stride, col_stride, inside, KIND, STRIDED, L, V), KIND)
                here += L
                nan, pos, neg, zero, tiny, low, high, least, s1, sa, s2, s3, s4 = _with_specials(
                    x, inside, scale, shift, nan, pos, neg, zero, tiny, low, high, least, s1, sa, s2, s3, s4, SMALLEST, MOMENTS
                )
            if MOMENTS:
                if (at >= end) | (unflushed == FLUSH):
                    unflushed = 0
                    d1 += tl.sum(s1).to(tl.float64)
                    da += tl.sum(sa).to(tl.float64)
                    d2 += tl.sum(s2).to(tl.float64)
                    d3 += tl.sum(s3).to(tl.float64)
                    d4 += tl.sum(s4).to(tl.float64)
                    s1, sa, s2, s3, s4 = nothing, nothing, nothing, nothing, nothing
        if MOMENTS:
            d1 += tl.sum(s1).to(tl.float64)  # of the ends, where there is nothing else
            da += tl.sum(sa).to(tl.float64)
            d2 += tl.sum(s2).to(tl.float64)
            d3 += tl.sum(s3).to(tl.float64)
            d4 += tl.sum(s4).to(tl.float64)
        if MOMENTS and KIND != 1:
            num_finite = count - (tl.sum(nan) + tl.sum(pos) + tl.sum(neg)).to(tl.float64)
            other_scale, other_shift = _refitted(num_finite, tl.min(low), tl.max(high), d1, d2, scale, shift)
            if (other_scale == scale) & (other_shift == shift):
                tries = 0
            elif tries > 0:
                scale = other_scale
                shift = other_shift
        else:
            tries = 0
    back = 1.0 / scale.to(tl.float64)
    lowest_of_all = tl.min(low).to(tl.float64)
    highest_of_all = tl.max(high).to(tl.float64)
    return (
        count, tl.sum(nan).to(tl.float64), tl.sum(pos).to(tl.float64), tl.sum(neg).to(tl.float64),
        tl.sum(zero).to(tl.float64), tl.sum(tiny).to(tl.float64), lowest_of_all, highest_of_all, tl.min(least).to(tl.float64),
        tl.maximum(-lowest_of_all, highest_of_all), d1 * back, da * back, d2 * back * back, d3 * back * back * back,
        d4 * back * back * back * back, shift.to(tl.float64) * back,
    )  # fmt: skip


@triton.jit
def _refitted(n, low, high, d1, d2, scale, shift):
    """The scale and the scaled center by which a share is read again; the same where sums by these are exact enough."""
    wide_scale = scale.to(tl.float64)
    wide_shift = shift.to(tl.float64)
    reach = tl.maximum(high.to(tl.float64) * wide_scale - wide_shift, wide_shift - low.to(tl.float64) * wide_scale)
    exponent = (reach.to(tl.int64, bitcast=True) >> 52).to(tl.int32) - 1023
    mean = d1 / n
    if (n > 0) & (reach > 0):
        if (exponent > 25) | (exponent < -16):
            other = _power_of_two(_exponent(scale) - exponent)
            shift = (wide_shift / wide_scale * other.to(tl.float64)).to(tl.float32)
            scale = other
        elif mean * mean > 4 * (d2 / n - mean * mean):
            shift = (wide_shift + mean).to(tl.float32)
    return scale, shift


@triton.jit
def _num_parts(numel, kind, tiles_each, L: tl.constexpr):
    """Programs that share a tensor."""
    each = tiles_each * L * tl.where(kind < 2, tl.where(kind == 0, _TILE[0], _TILE[1]), _TILE[2])
    return (numel + each - 1) // each


@triton.jit(do_not_specialize=_NUMBERS)  # one program for every launch of a variant: no number is taken for a multiple of 16, or for 1
def observe(
    table: tl.int64, programs: tl.int64, parts: tl.int64, counters: tl.int64, tiles_each: tl.int64,
    address0: tl.int64, row0: tl.int64, numel0: tl.int64, kind0: tl.int64,
    address1: tl.int64, row1: tl.int64, numel1: tl.int64, kind1: tl.int64,
    address2: tl.int64, row2: tl.int64, numel2: tl.int64, kind2: tl.int64,
    address3: tl.int64, row3: tl.int64, numel3: tl.int64, kind3: tl.int64,
    KINDS: tl.constexpr, MOMENTS: tl.constexpr, TABLE: tl.constexpr, STRIDED: tl.constexpr, VECTORS: tl.constexpr,
    L: tl.constexpr, CHUNK: tl.constexpr, FLUSH: tl.constexpr, SAMPLE: tl.constexpr, FOLD: tl.constexpr,
):  # fmt: skip
    """Merges tensors' summaries into their rows, on as many programs as they have parts; the last program of a tensor folds its parts.

    Addresses are in device memory. Of each tensor: its address, its row's, its number of elements, its dtype's code, as arguments or, with
    the sizes and steps of rows in it, in a ``table`` [N, 8] of int64; ``programs`` then holds each program's tensor. KINDS: a bit for each
    code that occurs. VECTORS: elements are read 16 bytes at a time; strided rows must allow that.
    """
    program = tl.program_id(0)
    cols, row_stride, col_stride = numel0, numel0, numel0
    if TABLE:
        index = tl.load(programs.to(tl.pointer_type(tl.int64)) + program)
        entry = table.to(tl.pointer_type(tl.int64)) + index * 8
        address, row_address, numel, kind = tl.load(entry), tl.load(entry + 1), tl.load(entry + 2), tl.load(entry + 3)
        if STRIDED:
            cols, row_stride, col_stride = tl.load(entry + 4), tl.load(entry + 5), tl.load(entry + 6)
        part = program - tl.load(entry + 7)
    else:
        ends0 = _num_parts(numel0, kind0, tiles_each, L)
        ends1 = ends0 + _num_parts(numel1, kind1, tiles_each, L)
        ends2 = ends1 + _num_parts(numel2, kind2, tiles_each, L)
        index = (program >= ends0).to(tl.int64) + (program >= ends1).to(tl.int64) + (program >= ends2).to(tl.int64)
        address = tl.where(index < 2, tl.where(index == 0, address0, address1), tl.where(index == 2, address2, address3))
        row_address = tl.where(index < 2, tl.where(index == 0, row0, row1), tl.where(index == 2, row2, row3))
        numel = tl.where(index < 2, tl.where(index == 0, numel0, numel1), tl.where(index == 2, numel2, numel3))
        kind = tl.where(index < 2, tl.where(index == 0, kind0, kind1), tl.where(index == 2, kind2, kind3))
        part = program - tl.where(index < 2, tl.where(index == 0, 0, ends0), tl.where(index == 2, ends1, ends2))
    num_parts = _num_parts(numel, kind, tiles_each, L)
    nothing = tl.full([], 0.0, tl.float64)
    f0, f1, f2, f3, f4, f5, f6, f7 = nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing
    f8, f9, f10, f11, f12, f13, f14, f15 = nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing
    for KIND in tl.static_range(_NUM_KINDS):
        if KINDS & (1 << KIND):
            if kind == KIND:
                f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15 = _share(
                    address, numel, cols, row_stride, col_stride, part, tiles_each, KIND, MOMENTS, STRIDED, VECTORS, L, CHUNK, FLUSH, SAMPLE
                )
    row = row_address.to(tl.pointer_type(tl.float64))
    if num_parts == 1:
        merge(row, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, MOMENTS)
    else:
        all_parts = parts.to(tl.pointer_type(tl.float64))
        stride = tl.num_programs(0)  # a field of all parts lies together: they are folded in coalesced loads
        mine = all_parts + program
        tl.store(mine, f0)
        tl.store(mine + 1 * stride, f1)
        tl.store(mine + 2 * stride, f2)
        tl.store(mine + 3 * stride, f3)
        tl.store(mine + 4 * stride, f4)
        tl.store(mine + 5 * stride, f5)
        tl.store(mine + 6 * stride, f6)
        tl.store(mine + 7 * stride, f7)
        tl.store(mine + 8 * stride, f8)
        tl.store(mine + 9 * stride, f9)
        if MOMENTS:
            tl.store(mine + 10 * stride, f10)
            tl.store(mine + 11 * stride, f11)
            tl.store(mine + 12 * stride, f12)
            tl.store(mine + 13 * stride, f13)
            tl.store(mine + 14 * stride, f14)
            tl.store(mine + 15 * stride, f15)
        tl.debug_barrier()
        counter = counters.to(tl.pointer_type(tl.int32)) + index
        if tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == num_parts - 1:
            tl.debug_barrier()
            fold(mine - part, stride, row, num_parts, MOMENTS, FOLD)
            tl.store(counter, 0)  # for the next launch
