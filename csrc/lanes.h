// The vector types that all kernels share, with number formats, conversions to float32, and largest magnitudes.
//
// Compiled once for each instruction set: the including file defines VECTOR_BYTES and sets the target. Everything here has internal linkage
// and no std:: template is used; otherwise the linker could keep a COMDAT compiled for AVX-512 for all instruction sets.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(USE_X86)
#include <immintrin.h>
#endif

namespace numscope {
namespace {

constexpr int64_t FETCH_AHEAD = 4096;  // bytes; the processor's prefetcher stops at each page

template <class T>
struct Lanes {
    typedef T type __attribute__((vector_size(VECTOR_BYTES)));
};
template <class T>
using lanes = typename Lanes<T>::type;

using FloatLanes = lanes<float>;
using DoubleLanes = lanes<double>;
using WordLanes = lanes<uint32_t>;
constexpr int64_t FLOATS = VECTOR_BYTES / 4;  // in a vector

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

template <class V>
inline bool any(V mask) {
    using Q = lanes<uint64_t>;
    const Q q = (Q)mask;
    uint64_t bits = 0;
    for (int i = 0; i < VECTOR_BYTES / 8; i++) bits |= q[i];
    return bits != 0;
}

// Keeps the compiler from fusing a product with the addition after it, which would round once where the definition rounds twice.
template <class V>
inline __attribute__((always_inline)) void settle(V& x) {
#if defined(USE_X86) && VECTOR_BYTES == 64
    asm("" : "+v"(x));
#elif defined(__x86_64__)
    asm("" : "+x"(x));
#elif defined(__aarch64__)
    asm("" : "+w"(x));
#else
    volatile V kept = x;
    x = kept;
#endif
}

// ---- formats: bit patterns of a sign, an exponent and a fraction

struct Float32 {
    using bits = uint32_t;
    using sbits = int32_t;
    static constexpr bits ABS = 0x7fffffffu, INF = 0x7f800000u, MIN_NORMAL = 0x00800000u;
    static constexpr bool SUBNORMALS_ARE_RARE = true;
    static uint32_t word(bits b) { return b; }
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
    static uint32_t word(bits b) { return uint32_t(b) << 16; }  // the same number in float32
    static double value(bits b) { return Float32::value(word(b)); }
};
struct Float16 {
    using bits = uint16_t;
    using sbits = int16_t;
    static constexpr bits ABS = 0x7fff, INF = 0x7c00, MIN_NORMAL = 0x0400;
    static constexpr bool SUBNORMALS_ARE_RARE = false;  // below 6e-5: gradients are full of them, so they are counted in the scan
    static uint32_t word(bits b) {
        const uint32_t a = b & ABS;
        const float tiny = float(a) * 0x1p-24f;  // by conversion, to avoid slow arithmetic on denormals
        uint32_t subnormal;
        memcpy(&subnormal, &tiny, 4);
        const uint32_t normal = (a << 13) + (112u << 23), special = Float32::INF | (a << 13);
        return (a >= INF ? special : a < MIN_NORMAL ? subnormal : normal) | uint32_t(b & 0x8000u) << 16;
    }
    static double value(bits b) { return Float32::value(word(b)); }
};

// ---- elements as float32, in their order

inline WordLanes widen_bits(const uint32_t* p, Float32) { return load<WordLanes>(p); }
#if defined(USE_X86) && VECTOR_BYTES == 64  // with the unmasked forms GCC 12 warns about uninitialized registers
inline WordLanes widen_bits(const uint16_t* p, BFloat16) {
    return (WordLanes)_mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256((const __m256i*)p)), 16);
}
inline WordLanes widen_bits(const uint16_t* p, Float16) {
    return (WordLanes)_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256((const __m256i*)p));
}
#elif defined(USE_X86)
inline WordLanes widen_bits(const uint16_t* p, BFloat16) {
    return (WordLanes)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16);
}
inline WordLanes widen_bits(const uint16_t* p, Float16) { return (WordLanes)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
#else
typedef uint16_t HalfWords __attribute__((vector_size(VECTOR_BYTES / 2)));
inline WordLanes half_to_float(WordLanes half) {  // mirrors Float16::word
    const WordLanes a = half & Float16::ABS;
    const WordLanes subnormal = (WordLanes)(__builtin_convertvector((lanes<int32_t>)a, FloatLanes) * 0x1p-24f);
    const WordLanes normal = (a << 13) + (112u << 23), special = (a << 13) | Float32::INF;
    return (a >= Float16::INF ? special : a < Float16::MIN_NORMAL ? subnormal : normal) | (half & 0x8000u) << 16;
}
inline WordLanes widen_bits(const uint16_t* p, BFloat16) { return __builtin_convertvector(load<HalfWords>(p), WordLanes) << 16; }
inline WordLanes widen_bits(const uint16_t* p, Float16) { return half_to_float(__builtin_convertvector(load<HalfWords>(p), WordLanes)); }
#endif

// ---- elements as float64

#if defined(USE_X86) && VECTOR_BYTES == 64  // GCC 12 compiles the portable form to four conversions and shuffles
inline DoubleLanes widen(const float* p) { return (DoubleLanes)_mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(p)); }
#elif defined(USE_X86)
inline DoubleLanes widen(const float* p) { return (DoubleLanes)_mm256_cvtps_pd(_mm_loadu_ps(p)); }
#else
inline DoubleLanes widen(const float* p) {
    typedef float HalfVector __attribute__((vector_size(VECTOR_BYTES / 2)));
    return __builtin_convertvector(load<HalfVector>(p), DoubleLanes);
}
#endif
inline DoubleLanes widen(const double* p) { return load<DoubleLanes>(p); }

// Each half of a float32 vector, widened to a full float64 vector.
#if defined(USE_X86) && VECTOR_BYTES == 64
inline __attribute__((always_inline)) void halves(FloatLanes x, DoubleLanes& low, DoubleLanes& high) {
    low = (DoubleLanes)_mm512_maskz_cvtps_pd(0xff, _mm512_maskz_extractf32x8_ps(0xff, (__m512)x, 0));
    high = (DoubleLanes)_mm512_maskz_cvtps_pd(0xff, _mm512_maskz_extractf32x8_ps(0xff, (__m512)x, 1));
}
#elif defined(USE_X86)
inline __attribute__((always_inline)) void halves(FloatLanes x, DoubleLanes& low, DoubleLanes& high) {
    low = (DoubleLanes)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x));
    high = (DoubleLanes)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1));
}
#else
inline __attribute__((always_inline)) void halves(FloatLanes x, DoubleLanes& low, DoubleLanes& high) {
    float numbers[FLOATS];
    store(numbers, x);
    low = widen(numbers);
    high = widen(numbers + FLOATS / 2);
}
#endif

// ---- the largest magnitude, as a bit pattern: nan is larger than inf

enum Except { NOTHING, NANS };  // elements that count as 0

template <class Format, Except EXCEPT, class V>
inline V magnitude_of(V b) {
    const V magnitude = b & Format::ABS;
    if (EXCEPT == NOTHING) return magnitude;
    return magnitude & (V)(magnitude <= Format::INF);
}

template <class Format, Except EXCEPT>
inline typename Format::bits largest_magnitude(const void* data, int64_t n) {
    using bits = typename Format::bits;
    using U = lanes<bits>;
    constexpr int64_t WIDTH = VECTOR_BYTES / sizeof(bits);
    const bits* p = static_cast<const bits*>(data);
    U a{}, b{};
    int64_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {  // two chains hide the latency
        const U x = magnitude_of<Format, EXCEPT>(load<U>(p + i)), y = magnitude_of<Format, EXCEPT>(load<U>(p + i + WIDTH));
        const char* ahead = reinterpret_cast<const char*>(p + i) + FETCH_AHEAD;
        for (int line = 0; line < 2 * VECTOR_BYTES; line += 64) __builtin_prefetch(ahead + line);
        a = x > a ? x : a;
        b = y > b ? y : b;
    }
    a = a > b ? a : b;
    bits most = 0;
    for (int lane = 0; lane < WIDTH; lane++) most = a[lane] > most ? a[lane] : most;
    for (; i < n; i++) {
        const bits magnitude = load<bits>(p + i) & Format::ABS;
        const bool counts = EXCEPT == NOTHING || (EXCEPT == NANS ? magnitude <= Format::INF : magnitude < Format::INF);
        if (counts && magnitude > most) most = magnitude;
    }
    return most;
}

}  // namespace
}  // namespace numscope
