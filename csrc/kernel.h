// The chunk kernel, written once in the compiler's vector types and compiled once for each instruction set.
//
// The including file defines VECTOR_BYTES and ISA and sets the target; lanes.h documents the other rules.
//
// A chunk is processed in blocks that stay in the first-level cache. Integer lanes read a block first (`scan`): comparing bit patterns, which
// needs no conversion, gives extrema and zeros, and shows whether the block contains a NaN, an infinity or a subnormal. Such a block is rare
// and is handled by `careful`; any other block goes straight to the sums. All additions are in float64: a float32 product or partial sum
// would leave an error in a variance's seventh digit. Sums are about a center, one of the chunk's elements, where the mean may be far above
// the deviation: differences of raw powers would lose (mean/std)^2 digits of a variance, (mean/std)^4 of a fourth moment.

#include "lanes.h"
#include "summary.h"

namespace numscope {
namespace {

constexpr int64_t BLOCK = 32 * VECTOR_BYTES;  // elements; a lane of the sums adds 128 numbers before rounding errors are compensated

// ---- extrema and zeros, in integer lanes

template <class Format>
struct Scan {
    using bits = typename Format::bits;
    using sbits = typename Format::sbits;
    using U = lanes<bits>;
    using S = lanes<sbits>;
    static constexpr int WIDTH = VECTOR_BYTES / sizeof(bits);

    // Compared as unsigned integers, negative floats are above all positive ones and increase with their magnitude; as signed integers they
    // are below. So the unsigned maximum is the minimum if any element is negative, and the signed maximum is the maximum if any is not.
    U highest_unsigned;
    S highest_signed;
    U lowest_less_1;     // smallest magnitude - 1: for zero it wraps to the top and drops out of the minimum
    U num_below_normal;  // a lane counts up to CHUNK / WIDTH, which fits in 16 bits
    U num_zero;          // used only where subnormals are not rare

    void clear() {
        highest_unsigned = U{};
        highest_signed = S{} + sbits(bits(1) << (sizeof(bits) * 8 - 1));
        lowest_less_1 = ~U{};
        num_below_normal = U{};
        num_zero = U{};
    }

    // Without COUNT it takes four operations instead of seven. That is correct only for a block without zeros and subnormals; the end checks it.
    template <bool COUNT>
    inline __attribute__((always_inline)) void take(U b) {
        const U magnitude = b & Format::ABS;
        const U low = COUNT ? magnitude - bits(1) : magnitude;
        const S s = (S)b;
        highest_unsigned = b > highest_unsigned ? b : highest_unsigned;
        highest_signed = s > highest_signed ? s : highest_signed;
        lowest_less_1 = low < lowest_less_1 ? low : lowest_less_1;
        if (!COUNT) return;
        num_below_normal -= (U)(magnitude < Format::MIN_NORMAL);
        if (!Format::SUBNORMALS_ARE_RARE) num_zero -= (U)(magnitude == bits(0));
    }

    inline void join(const Scan& o) {
        highest_unsigned = o.highest_unsigned > highest_unsigned ? o.highest_unsigned : highest_unsigned;
        highest_signed = o.highest_signed > highest_signed ? o.highest_signed : highest_signed;
        lowest_less_1 = o.lowest_less_1 < lowest_less_1 ? o.lowest_less_1 : lowest_less_1;
        num_below_normal += o.num_below_normal;
        num_zero += o.num_zero;
    }

    bool has_nonfinite() const {
        constexpr bits NEG_INF = bits(Format::INF | ~Format::ABS);
        return any((U)(highest_unsigned >= NEG_INF) | (U)(highest_signed >= sbits(Format::INF)));
    }
    bool has_negative() const { return any((U)(highest_unsigned > Format::ABS)); }
    bool has_positive() const { return any((U)(highest_signed >= sbits(0))); }
    bool has_subnormal() const { return any((U)(lowest_less_1 < bits(Format::MIN_NORMAL - 1))); }
    bool has_below_normal() const { return any(num_below_normal); }
};

// n must be a multiple of Scan::WIDTH. It prefetches; where sums follow, only the first half of the next block and they the second, so that memory
// never rests. Sums of 16-bit numbers take so long that they fetch all of it. A prefetch never faults, even past the tensor's end.
template <class Format, bool COUNT, bool ALONE>
inline Scan<Format> scan(const typename Format::bits* data, int64_t n) {
    using S = Scan<Format>;
    S a, b;
    a.clear();
    b.clear();
    int64_t i = 0;
    for (; i + 2 * S::WIDTH <= n; i += 2 * S::WIDTH) {  // two chains hide the latency
        a.template take<COUNT>(load<typename S::U>(data + i));
        b.template take<COUNT>(load<typename S::U>(data + i + S::WIDTH));
        const char* here = reinterpret_cast<const char*>(data + i);
        for (int line = 0; ALONE && line < 2 * VECTOR_BYTES; line += 64) __builtin_prefetch(here + FETCH_AHEAD + line);
        if (!ALONE && sizeof(*data) > 2) __builtin_prefetch(reinterpret_cast<const char*>(data + n) + i * sizeof(*data) / 2);
    }
    if (i < n) a.template take<COUNT>(load<typename S::U>(data + i));
    a.join(b);
    return a;
}

// ---- sums of powers, in float64 lanes

struct Sums {
    using D = DoubleLanes;
    using Q = lanes<uint64_t>;
    D sum, abs_sum, square, cube, fourth;

    void clear() { sum = abs_sum = square = cube = fourth = D{}; }

    // Without CENTERED the center is 0. With it abs_sum is left to the caller, who knows whether all elements have one sign.
    template <bool CENTERED, bool HIGH>
    inline __attribute__((always_inline)) void take(D x, D center) {
        const D y = CENTERED ? x - center : x;
        const D y2 = y * y;
        sum += y;
        if (!CENTERED) abs_sum += (D)((Q)x & Float64::ABS);
        square += y2;  // becomes a fused multiply-add if the target has one, as the next do
        if (!HIGH) return;
        cube += y2 * y;
        fourth += y2 * y2;
    }

    inline void join(const Sums& o) {
        sum += o.sum;
        abs_sum += o.abs_sum;
        square += o.square;
        cube += o.cube;
        fourth += o.fourth;
    }
};

// A sum and the rounding errors of its additions so far. Plain addition over a chunk would lose three bits, and a variance needs these bits if
// the mean is a thousand times the deviation.
template <class V>
struct Compensated {
    V high, low;

    void add(V x) {  // Knuth's two-sum: high + x and its exact rounding error
        const V total = high + x;
        const V from_x = total - high;
        low += (high - (total - from_x)) + (x - from_x);
        high = total;
    }
};

struct Totals {
    Compensated<DoubleLanes> sum, abs_sum, square, cube, fourth;

    void clear() { sum = abs_sum = square = cube = fourth = Compensated<DoubleLanes>{}; }

    void add(const Sums& block) {
        sum.add(block.sum);
        abs_sum.add(block.abs_sum);
        square.add(block.square);
        cube.add(block.cube);
        fourth.add(block.fourth);
    }

    static double across(const Compensated<DoubleLanes>& lanes) {
        Compensated<double> total{};
        for (int i = 0; i < VECTOR_BYTES / 8; i++) total.add(lanes.high[i]);
        for (int i = 0; i < VECTOR_BYTES / 8; i++)
            if (lanes.low[i] - lanes.low[i] == 0) total.add(lanes.low[i]);  // NaN in a lane that overflowed
        return settled(total.high, total.low);
    }
};

// The second half of the next block of n bytes, while offset grows from 0 to n.
inline void fetch(const void* next, int64_t n, int64_t offset) {
    __builtin_prefetch(static_cast<const char*>(next) + n / 2 + offset / 2);
}

// n must be a multiple of VECTOR_BYTES / 4.
//
// A lane adds at most 32 squares before it starts again: the square of a float32 has 48 bits, so that many add up without rounding. The bits
// lost by rounding would not be random: a square is 0 or 1 modulo 4, so it would always round down and make a variance too small by 1e-9 if
// the mean is a thousand times the deviation.
template <bool CENTERED, bool HIGH, class T>
inline Sums powers(const T* data, int64_t n, const void* next, double about) {
    constexpr int WIDTH = VECTOR_BYTES / 8;
    const DoubleLanes center = DoubleLanes{} + about;
    Sums a, b;
    a.clear();
    b.clear();
    DoubleLanes squares{};
    for (int64_t i = 0; i < n;) {
        const int64_t end = n - i < 64 * WIDTH ? n : i + 64 * WIDTH;
        for (; i < end; i += 2 * WIDTH) {
            a.template take<CENTERED, HIGH>(widen(data + i), center);
            b.template take<CENTERED, HIGH>(widen(data + i + WIDTH), center);
            fetch(next, n * sizeof(T), i * sizeof(T));
        }
        squares += a.square + b.square;
        a.square = b.square = DoubleLanes{};
    }
    a.join(b);
    a.square = squares;
    return a;
}
template <bool CENTERED, bool HIGH>
inline Sums powers_of(const uint32_t* bits, int64_t n, const void* next, double center, Float32) {
    return powers<CENTERED, HIGH>(reinterpret_cast<const float*>(bits), n, next, center);
}
template <bool CENTERED, bool HIGH>
inline Sums powers_of(const uint64_t* bits, int64_t n, const void* next, double center, Float64) {
    return powers<CENTERED, HIGH>(reinterpret_cast<const double*>(bits), n, next, center);
}

// A vector of 16-bit numbers as two vectors of float32; their order does not matter to a sum.
inline __attribute__((always_inline)) void to_float(const uint16_t* data, float* out, BFloat16) {
    const WordLanes pair = load<WordLanes>(data);
    store(out, (WordLanes)(pair << 16));
    store(out + FLOATS, (WordLanes)(pair & 0xffff0000u));
}
inline __attribute__((always_inline)) void to_float(const uint16_t* data, float* out, Float16 format) {
#if defined(USE_X86)
    store(out, widen_bits(data, format));
    store(out + FLOATS, widen_bits(data + FLOATS, format));
#else
    const WordLanes pair = load<WordLanes>(data);
    store(out, half_to_float(pair & 0xffffu));
    store(out + FLOATS, half_to_float(pair >> 16));
#endif
}

// 16-bit formats are converted to float32 in the first-level cache, from where widening to float64 needs no shuffle. Converting one vector
// ahead overlaps the stores with the arithmetic. n must be a multiple of VECTOR_BYTES / 2.
template <bool CENTERED, bool HIGH, class Format>
inline Sums powers_of(const uint16_t* bits, int64_t n, const void* next, double about, Format format) {
    constexpr int WIDTH = VECTOR_BYTES / 8;
    const DoubleLanes center = DoubleLanes{} + about;
    alignas(64) float buffer[BLOCK + 4 * WIDTH];
    Sums a, b;
    a.clear();
    b.clear();
    to_float(bits, buffer, format);
    for (int64_t i = 0; i < n; i += 4 * WIDTH) {
        const int64_t ahead = i + 4 * WIDTH;
        to_float(bits + (ahead < n ? ahead : i), buffer + ahead, format);
        a.template take<CENTERED, HIGH>(widen(buffer + i), center);
        b.template take<CENTERED, HIGH>(widen(buffer + i + WIDTH), center);
        a.template take<CENTERED, HIGH>(widen(buffer + i + 2 * WIDTH), center);
        b.template take<CENTERED, HIGH>(widen(buffer + i + 3 * WIDTH), center);
        __builtin_prefetch(static_cast<const char*>(next) + i * 2);
    }
    a.join(b);
    return a;
}

// ---- one chunk

template <class Format>
struct Chunk {
    using bits = typename Format::bits;
    Scan<Format> seen;
    Totals totals;
    int64_t num_finite = 0, num_nan = 0, num_pos_inf = 0, num_neg_inf = 0, num_zero = 0, num_subnormal = 0;
    bits center_bits = 0;
    double center = 0;
    bool counting = false;  // zeros tend to cluster: whether the last block had any element below normal

    Chunk() {
        seen.clear();
        totals.clear();
    }

    Sums sums_of(const bits* data, int64_t n, const void* next, int groups) const {
        const bool high = groups & HIGHER;
        if (center_bits) return high ? powers_of<true, true>(data, n, next, center, Format()) : powers_of<true, false>(data, n, next, center, Format());
        return high ? powers_of<false, true>(data, n, next, 0.0, Format()) : powers_of<false, false>(data, n, next, 0.0, Format());
    }

    // Magnitudes one by one: of blocks with special values, or with both signs.
    static double magnitudes(const bits* data, int64_t n) {
        double total = 0;
        for (int64_t i = 0; i < n; i++)
            if ((data[i] & Format::ABS) < Format::INF) total += Format::value(bits(data[i] & Format::ABS));
        return total;
    }

    // For a block with special values, and for the chunk's odd end: elements are classified and counted. Then extrema and sums are computed from
    // two copies in which other elements are replaced: by a finite element of the block for the extrema, and by the center for the sums,
    // whose magnitudes are then added one by one.
    __attribute__((noinline)) void careful(const bits* data, int64_t n, int groups) {
        constexpr bits SIGN = bits(~Format::ABS);
        uint32_t nan = 0, pos_inf = 0, neg_inf = 0, zero = 0, below_normal = 0;
        for (int64_t i = 0; i < n; i++) {
            const bits magnitude = data[i] & Format::ABS;
            nan += magnitude > Format::INF;
            pos_inf += data[i] == Format::INF;
            neg_inf += data[i] == bits(Format::INF | SIGN);
            zero += magnitude == 0;
            below_normal += magnitude < Format::MIN_NORMAL;
        }
        num_nan += nan;
        num_pos_inf += pos_inf;
        num_neg_inf += neg_inf;
        num_zero += zero;
        num_subnormal += below_normal - zero;
        counting = below_normal != 0;
        const int64_t finite = n - nan - pos_inf - neg_inf;
        if (finite == 0) return;
        num_finite += finite;
        int64_t first = 0;
        while ((data[first] & Format::ABS) >= Format::INF) first++;
        const bits stand_in = data[first];
        alignas(64) bits extrema[BLOCK], sums[BLOCK];
        for (int64_t i = 0; i < n; i++) {
            const bool counts = (data[i] & Format::ABS) < Format::INF;
            extrema[i] = counts ? data[i] : stand_in;
            sums[i] = counts ? data[i] : center_bits;
        }
        constexpr int64_t WIDTH = VECTOR_BYTES / (sizeof(bits) < 4 ? sizeof(bits) : 4);  // a multiple of every width used below
        const int64_t padded = (n + WIDTH - 1) / WIDTH * WIDTH;
        for (int64_t i = n; i < padded; i++) {
            extrema[i] = stand_in;
            sums[i] = center_bits;
        }
        Scan<Format> block = scan<Format, true, false>(extrema, padded);
        block.num_below_normal = block.num_zero = typename Scan<Format>::U{};  // counted above
        seen.join(block);
        if (!(groups & MOMENTS)) return;
        Sums powers = sums_of(sums, padded, data + n, groups);
        if (center_bits) {
            powers.abs_sum = DoubleLanes{};
            powers.abs_sum[0] = magnitudes(data, n);
        }
        totals.add(powers);
    }

    void block(const bits* data, int64_t n, int groups) {
        constexpr int64_t WIDTH = VECTOR_BYTES / (sizeof(bits) < 4 ? sizeof(bits) : 4);
        if (n % WIDTH) return careful(data, n, groups);
        Scan<Format> block;
        if (!counting) {
            block = groups & MOMENTS ? scan<Format, false, false>(data, n) : scan<Format, false, true>(data, n);
            if (__builtin_expect(block.has_nonfinite(), 0)) return careful(data, n, groups);
            counting = any((typename Scan<Format>::U)(block.lowest_less_1 < Format::MIN_NORMAL));
            block.lowest_less_1 -= bits(1);
        }
        if (counting) {
            block = groups & MOMENTS ? scan<Format, true, false>(data, n) : scan<Format, true, true>(data, n);
            const bool special = block.has_nonfinite() || (Format::SUBNORMALS_ARE_RARE && block.has_subnormal());
            if (__builtin_expect(special, 0)) return careful(data, n, groups);
            counting = block.has_below_normal();
        }
        seen.join(block);
        num_finite += n;
        if (!(groups & MOMENTS)) return;
        Sums powers = sums_of(data, n, data + n, groups);
        if (center_bits && block.has_negative() && block.has_positive()) {
            powers.abs_sum[0] = magnitudes(data, n);
        } else if (center_bits) {
            const DoubleLanes total = powers.sum + double(n / (VECTOR_BYTES / 8)) * center;  // each lane has taken so many elements
            powers.abs_sum = center < 0 ? -total : total;
        }
        totals.add(powers);
    }

    void finish(int groups, Row& out) {
        int64_t below_normal = 0, zero = 0;
        bits unsigned_max = 0, lowest_less_1 = bits(~bits(0));
        typename Format::sbits signed_max = seen.highest_signed[0];
        for (int i = 0; i < Scan<Format>::WIDTH; i++) {
            below_normal += seen.num_below_normal[i];
            zero += seen.num_zero[i];
            if (seen.highest_unsigned[i] > unsigned_max) unsigned_max = seen.highest_unsigned[i];
            if (seen.highest_signed[i] > signed_max) signed_max = seen.highest_signed[i];
            if (seen.lowest_less_1[i] < lowest_less_1) lowest_less_1 = seen.lowest_less_1[i];
        }
        if (Format::SUBNORMALS_ARE_RARE) zero = below_normal;  // a scanned block with a subnormal would have been handled by `careful`
        num_zero += zero;
        num_subnormal += below_normal - zero;
        reset(out);
        out.numel = double(num_finite + num_nan + num_pos_inf + num_neg_inf);
        out.num_nan = double(num_nan);
        out.num_pos_inf = double(num_pos_inf);
        out.num_neg_inf = double(num_neg_inf);
        out.num_zero = double(num_zero);
        out.num_subnormal = double(num_subnormal);
        if (num_finite == 0) return;
        const bool has_nonzero = lowest_less_1 != bits(~bits(0));
        const double smallest = has_nonzero ? Format::value(bits(lowest_less_1 + 1)) : 0.0;
        // Without a negative (positive) element the minimum (maximum) is the element nearest to zero.
        const double nearest = num_zero ? 0.0 : smallest;
        out.min = (unsigned_max & bits(~Format::ABS)) ? Format::value(unsigned_max) : nearest;
        out.max = signed_max >= 0 ? Format::value(bits(signed_max)) : -nearest;
        out.min += 0.0;  // -0.0 becomes 0.0
        out.max += 0.0;
        if (has_nonzero) out.abs_min = smallest;
        out.abs_max = -out.min > out.max ? -out.min : out.max;
        if (!(groups & MOMENTS)) return;
        out.sum = Totals::across(totals.sum);
        out.abs_sum = Totals::across(totals.abs_sum);
        out.square_sum = Totals::across(totals.square);
        out.cube_sum = Totals::across(totals.cube);
        out.fourth_sum = Totals::across(totals.fourth);
        out.center = center;
    }
};

template <class Format>
void chunk(const void* data, int64_t n, int groups, Row& out) {
    using bits = typename Format::bits;
    constexpr int64_t WIDTH = VECTOR_BYTES / (sizeof(bits) < 4 ? sizeof(bits) : 4);
    const bits* p = static_cast<const bits*>(data);
    Chunk<Format> c;
    const int64_t index = groups & MOMENTS ? center_index(n, [p](int64_t i) { return Format::value(load<bits>(p + i)); }) : -1;
    if (index >= 0) {
        c.center_bits = load<bits>(p + index);
        c.center = Format::value(c.center_bits);
    }
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) c.block(p + i, BLOCK, groups);
    const int64_t whole = (n - i) / WIDTH * WIDTH;
    if (whole) c.block(p + i, whole, groups);
    if (i + whole < n) c.careful(p + i + whole, n - i - whole, groups);
    c.finish(groups, out);
}

}  // namespace

const Kernels KERNELS = {ISA, chunk<Float32>, chunk<Float64>, chunk<BFloat16>, chunk<Float16>};

}  // namespace numscope
