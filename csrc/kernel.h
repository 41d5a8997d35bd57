// The chunk kernel, written once in the compiler's vector types and compiled once for each instruction set.
//
// The including file defines VECTOR_BYTES and ISA and sets the target. Everything here has internal linkage and no std:: template is
// used: a COMDAT compiled for AVX-512 could otherwise be the one that the linker keeps for all.
//
// A chunk is walked in blocks that stay in the first-level cache. A block is read by integer lanes first (`scan`): extrema and zeros come
// from comparing bit patterns, which needs no conversion, and tell whether the block holds a nan, an inf or a subnormal. Such a block is rare and
// goes the `careful` way; any other goes straight to the sums. Sums are in float64 from the first addition on: a float32 product or partial sum
// would leave a variance wrong in its seventh digit times (mean/std)^2.

#include <cstdint>
#include <cstring>

#include "summary.h"

#if defined(USE_X86)
#include <immintrin.h>
#endif

namespace numscope {
namespace {

constexpr int64_t BLOCK = 2048;

template <class T>
struct Lanes {
    typedef T type __attribute__((vector_size(VECTOR_BYTES)));
};
template <class T>
using lanes = typename Lanes<T>::type;

template <class V, class T>
inline V load(const T* p) {
    V v;
    memcpy(&v, p, sizeof(V));  // one unaligned load
    return v;
}
template <class T, class V>
inline void store(T* p, V v) {
    memcpy(p, &v, sizeof(V));
}

// ---- formats: bit patterns of a sign, an exponent and a fraction

struct Float32 {
    using bits = uint32_t;
    using sbits = int32_t;
    static constexpr bits ABS = 0x7fffffffu, INF = 0x7f800000u, MIN_NORMAL = 0x00800000u;
    static constexpr bool SUBNORMALS_ARE_RARE = true;
    static double value(bits b) {
        float f;
        memcpy(&f, &b, 4);
        return f;
    }
};
struct Float64 {
    using bits = uint64_t;
    using sbits = int64_t;
    static constexpr bits ABS = 0x7fffffffffffffffull, INF = 0x7ff0000000000000ull, MIN_NORMAL = 0x0010000000000000ull;
    static constexpr bool SUBNORMALS_ARE_RARE = true;
    static double value(bits b) {
        double d;
        memcpy(&d, &b, 8);
        return d;
    }
};
struct BFloat16 {
    using bits = uint16_t;
    using sbits = int16_t;
    static constexpr bits ABS = 0x7fff, INF = 0x7f80, MIN_NORMAL = 0x0080;
    static constexpr bool SUBNORMALS_ARE_RARE = true;
    static double value(bits b) { return Float32::value(uint32_t(b) << 16); }
};
struct Float16 {
    using bits = uint16_t;
    using sbits = int16_t;
    static constexpr bits ABS = 0x7fff, INF = 0x7c00, MIN_NORMAL = 0x0400;
    static constexpr bool SUBNORMALS_ARE_RARE = false;  // below 6e-5: gradients are full of them, so they are counted on the way
    static double value(bits b) {
        const bits a = b & ABS;
        const double magnitude = a < MIN_NORMAL ? a * 0x1p-24 : Float32::value((uint32_t(a) << 13) + (112u << 23));
        return (b & 0x8000) ? -magnitude : magnitude;
    }
};

// ---- extrema and zeros, in integer lanes

template <class Format>
struct Scan {
    using bits = typename Format::bits;
    using sbits = typename Format::sbits;
    using U = lanes<bits>;
    using S = lanes<sbits>;
    static constexpr int WIDTH = VECTOR_BYTES / sizeof(bits);

    // As unsigned numbers negative floats stand above all positive ones and grow with their magnitude; as signed numbers they stand below
    // and positive ones grow. So the unsigned maximum is the minimum if anything is negative, the signed maximum is the maximum if anything is not.
    U highest_unsigned;
    S highest_signed;
    U lowest_magnitude_less_1;  // 0 - 1 wraps to the top: zeros drop out of the minimum
    U num_below_normal;         // a lane counts to CHUNK / WIDTH at most, which fits 16 bits
    U num_zero;                 // only where subnormals are not rare

    void clear() {
        highest_unsigned = U{};
        highest_signed = S{} + sbits(bits(1) << (sizeof(bits) * 8 - 1));
        lowest_magnitude_less_1 = ~U{};
        num_below_normal = U{};
        num_zero = U{};
    }

    inline __attribute__((always_inline)) void take(U b) {
        const U magnitude = b & Format::ABS;
        const U less_1 = magnitude - bits(1);
        const S s = (S)b;
        highest_unsigned = b > highest_unsigned ? b : highest_unsigned;
        highest_signed = s > highest_signed ? s : highest_signed;
        lowest_magnitude_less_1 = less_1 < lowest_magnitude_less_1 ? less_1 : lowest_magnitude_less_1;
        num_below_normal -= (U)(magnitude < Format::MIN_NORMAL);
        if (!Format::SUBNORMALS_ARE_RARE) num_zero -= (U)(magnitude == bits(0));
    }

    inline void join(const Scan& o) {
        highest_unsigned = o.highest_unsigned > highest_unsigned ? o.highest_unsigned : highest_unsigned;
        highest_signed = o.highest_signed > highest_signed ? o.highest_signed : highest_signed;
        lowest_magnitude_less_1 = o.lowest_magnitude_less_1 < lowest_magnitude_less_1 ? o.lowest_magnitude_less_1 : lowest_magnitude_less_1;
        num_below_normal += o.num_below_normal;
        num_zero += o.num_zero;
    }

    // True if the block holds a nan or inf, or subnormals that the scan has not told from zeros.
    bool needs_care() const {
        constexpr bits NEG_INF = bits(Format::INF | ~Format::ABS);
        U bad = (U)(highest_unsigned >= NEG_INF) | (U)(highest_signed >= sbits(Format::INF));
        if (Format::SUBNORMALS_ARE_RARE) bad |= (U)(lowest_magnitude_less_1 < bits(Format::MIN_NORMAL - 1));
        bits any = 0;
        for (int i = 0; i < WIDTH; i++) any |= bad[i];
        return any != 0;
    }
};

// n must be a multiple of Scan::WIDTH.
template <class Format>
inline Scan<Format> scan(const typename Format::bits* data, int64_t n) {
    using S = Scan<Format>;
    S a, b;
    a.clear();
    b.clear();
    int64_t i = 0;
    for (; i + 2 * S::WIDTH <= n; i += 2 * S::WIDTH) {  // two chains hide the latency
        a.take(load<typename S::U>(data + i));
        b.take(load<typename S::U>(data + i + S::WIDTH));
    }
    if (i < n) a.take(load<typename S::U>(data + i));
    a.join(b);
    return a;
}

// ---- sums of powers, in float64 lanes

struct Sums {
    using D = lanes<double>;
    using Q = lanes<uint64_t>;
    D sum, abs_sum, square, cube, fourth;

    void clear() { sum = abs_sum = square = cube = fourth = D{}; }

    inline __attribute__((always_inline)) void take(D x) {
        const D x2 = x * x;
        sum += x;
        abs_sum += (D)((Q)x & Float64::ABS);
        square += x2;
        cube += x2 * x;  // contracted to a fused multiply-add where the target has one
        fourth += x2 * x2;
    }

    inline void join(const Sums& o) {
        sum += o.sum;
        abs_sum += o.abs_sum;
        square += o.square;
        cube += o.cube;
        fourth += o.fourth;
    }
};

#if defined(USE_X86) && VECTOR_BYTES == 64  // GCC 12 makes four conversions and their shuffles of the portable form
inline Sums::D widen(const float* p) { return (Sums::D)_mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(p)); }
#elif defined(USE_X86)
inline Sums::D widen(const float* p) { return (Sums::D)_mm256_cvtps_pd(_mm_loadu_ps(p)); }
#else
inline Sums::D widen(const float* p) {
    typedef float HalfVector __attribute__((vector_size(VECTOR_BYTES / 2)));
    return __builtin_convertvector(load<HalfVector>(p), Sums::D);
}
#endif
inline Sums::D widen(const double* p) { return load<Sums::D>(p); }

// n must be a multiple of VECTOR_BYTES / 4. Fetches the next block meanwhile: the sums are busy with arithmetic, the scan after them with memory;
// without it their times would add up on a tensor that is in no cache.
template <class T>
inline void add_powers(const T* data, int64_t n, const void* next, Sums& even, Sums& odd) {
    constexpr int WIDTH = VECTOR_BYTES / 8;
    const char* line = static_cast<const char*>(next);
    Sums a = even, b = odd;
    for (int64_t i = 0; i < n; i += 2 * WIDTH) {
        a.take(widen(data + i));
        b.take(widen(data + i + WIDTH));
        __builtin_prefetch(line + i * sizeof(T));  // never faults, past the tensor's end neither
    }
    even = a;
    odd = b;
}

// 16-bit formats go through float32 in a first-level-cache buffer: reading it back widens to float64 without a shuffle. The order of elements
// changes within a vector, which a sum over the block does not mind. n must be a multiple of VECTOR_BYTES / 2.
inline void to_float(const uint16_t* data, int64_t n, float* out, BFloat16) {
    using W = lanes<uint32_t>;
    constexpr int WIDTH = VECTOR_BYTES / 4;
    for (int64_t i = 0; i < n; i += 2 * WIDTH) {
        const W pair = load<W>(data + i);
        store(out + i, (W)(pair << 16));
        store(out + i + WIDTH, (W)(pair & 0xffff0000u));
    }
}

#if defined(USE_X86) && VECTOR_BYTES == 64
inline void to_float(const uint16_t* data, int64_t n, float* out, Float16) {
    for (int64_t i = 0; i < n; i += 16) {
        const __m256i h = _mm256_loadu_si256((const __m256i*)(data + i));
        _mm512_storeu_ps(out + i, _mm512_maskz_cvtph_ps(0xffff, h));  // the unmasked form makes GCC 12 warn of an uninitialized register
    }
}
#elif defined(USE_X86)
inline void to_float(const uint16_t* data, int64_t n, float* out, Float16) {
    for (int64_t i = 0; i < n; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(data + i))));
}
#else
inline lanes<uint32_t> half_to_float(lanes<uint32_t> h) {
    using W = lanes<uint32_t>;
    using F = lanes<float>;
    const W a = h & 0x7fffu;
    const W normal = (a << 13) + (112u << 23);
    const W subnormal = (W)(__builtin_convertvector((lanes<int32_t>)a, F) * 0x1p-24f);  // by conversion: no denormal operand, which is slow
    return (a < 0x0400u ? subnormal : normal) | ((h & 0x8000u) << 16);
}
inline void to_float(const uint16_t* data, int64_t n, float* out, Float16) {
    using W = lanes<uint32_t>;
    constexpr int WIDTH = VECTOR_BYTES / 4;
    for (int64_t i = 0; i < n; i += 2 * WIDTH) {
        const W pair = load<W>(data + i);
        store(out + i, half_to_float(pair & 0xffffu));
        store(out + i + WIDTH, half_to_float(pair >> 16));
    }
}
#endif

inline void add_powers_of(const uint32_t* bits, int64_t n, const void* next, Sums& a, Sums& b, Float32) {
    add_powers(reinterpret_cast<const float*>(bits), n, next, a, b);
}
inline void add_powers_of(const uint64_t* bits, int64_t n, const void* next, Sums& a, Sums& b, Float64) {
    add_powers(reinterpret_cast<const double*>(bits), n, next, a, b);
}
template <class Format>
inline void add_powers_of(const uint16_t* bits, int64_t n, const void* next, Sums& a, Sums& b, Format format) {
    alignas(64) float buffer[BLOCK];
    to_float(bits, n, buffer, format);
    add_powers(buffer, n, next, a, b);
}

// ---- one chunk

template <class Format>
struct Chunk {
    using bits = typename Format::bits;
    Scan<Format> seen;
    Sums even, odd;
    int64_t num_finite = 0, num_nan = 0, num_pos_inf = 0, num_neg_inf = 0, num_zero = 0, num_subnormal = 0;
    bool any_zero = false;

    Chunk() {
        seen.clear();
        even.clear();
        odd.clear();
    }

    // A block with specials, or the chunk's odd end: counts by classification, then extrema and sums from two copies in which what does not
    // count is replaced, by a finite element of the block for the extrema and by zero for the sums.
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
        any_zero |= zero != 0;
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
            sums[i] = counts ? data[i] : bits(0);
        }
        constexpr int64_t WIDTH = VECTOR_BYTES / (sizeof(bits) < 4 ? sizeof(bits) : 4);  // a multiple of every width used below
        const int64_t padded = (n + WIDTH - 1) / WIDTH * WIDTH;
        for (int64_t i = n; i < padded; i++) {
            extrema[i] = stand_in;
            sums[i] = 0;
        }
        Scan<Format> block = scan<Format>(extrema, padded);
        block.num_below_normal = block.num_zero = typename Scan<Format>::U{};  // counted above
        seen.join(block);
        if (groups & MOMENTS) add_powers_of(sums, padded, data + n, even, odd, Format());
    }

    void block(const bits* data, int64_t n, int groups) {
        constexpr int64_t WIDTH = VECTOR_BYTES / (sizeof(bits) < 4 ? sizeof(bits) : 4);
        if (n % WIDTH) return careful(data, n, groups);
        const Scan<Format> block = scan<Format>(data, n);
        if (__builtin_expect(block.needs_care(), 0)) return careful(data, n, groups);
        seen.join(block);
        num_finite += n;
        if (groups & MOMENTS) add_powers_of(data, n, data + n, even, odd, Format());
    }

    void finish(int groups, Row& out) {
        int64_t below_normal = 0, zero = 0;
        bits unsigned_max = 0, magnitude_less_1 = bits(~bits(0));
        typename Format::sbits signed_max = seen.highest_signed[0];
        for (int i = 0; i < Scan<Format>::WIDTH; i++) {
            below_normal += seen.num_below_normal[i];
            zero += seen.num_zero[i];
            if (seen.highest_unsigned[i] > unsigned_max) unsigned_max = seen.highest_unsigned[i];
            if (seen.highest_signed[i] > signed_max) signed_max = seen.highest_signed[i];
            if (seen.lowest_magnitude_less_1[i] < magnitude_less_1) magnitude_less_1 = seen.lowest_magnitude_less_1[i];
        }
        if (Format::SUBNORMALS_ARE_RARE) zero = below_normal;  // a scanned block with a subnormal would have gone the careful way
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
        const bool has_nonzero = magnitude_less_1 != bits(~bits(0));
        const double smallest = has_nonzero ? Format::value(bits(magnitude_less_1 + 1)) : 0.0;
        // Without a negative (positive) element the minimum (maximum) is the element nearest to zero.
        const double nearest = num_zero ? 0.0 : smallest;
        out.min = (unsigned_max & bits(~Format::ABS)) ? Format::value(unsigned_max) : nearest;
        out.max = signed_max >= 0 ? Format::value(bits(signed_max)) : -nearest;
        out.min += 0.0;  // -0.0 becomes 0.0
        out.max += 0.0;
        if (has_nonzero) out.abs_min = smallest;
        out.abs_max = -out.min > out.max ? -out.min : out.max;
        if (!(groups & MOMENTS)) return;
        even.join(odd);
        for (int i = 0; i < VECTOR_BYTES / 8; i++) {
            out.sum += even.sum[i];
            out.abs_sum += even.abs_sum[i];
            out.square_sum += even.square[i];
            out.cube_sum += even.cube[i];
            out.fourth_sum += even.fourth[i];
        }
    }
};

template <class Format>
void chunk(const void* data, int64_t n, int groups, Row& out) {
    using bits = typename Format::bits;
    constexpr int64_t WIDTH = VECTOR_BYTES / (sizeof(bits) < 4 ? sizeof(bits) : 4);
    const bits* p = static_cast<const bits*>(data);
    Chunk<Format> c;
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
