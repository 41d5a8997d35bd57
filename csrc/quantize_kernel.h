// The kernels of casts, compiled once for each instruction set.
//
// A magnitude is limited to the format's maximum first. No check is needed after rounding, because rounding keeps order and the maximum is a
// number of the format. Then a number half again as large as 2^(bits of the significand) times the distance between neighbors is added, which
// leaves no bit below that distance: the processor's rounding (ties to even) does the cast, including subnormals.

#include "lanes.h"
#include "quantize.h"

namespace numscope {
namespace {

constexpr uint32_t SIGN = 0x80000000u;

// ---- conversion from float32

#if defined(USE_X86) && VECTOR_BYTES == 64
inline void narrow(uint16_t* p, FloatLanes v, Float16) {
    _mm256_storeu_si256((__m256i*)p, _mm512_maskz_cvtps_ph(0xffff, (__m512)v, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_upper(uint16_t* p, WordLanes v) {
    _mm256_storeu_si256((__m256i*)p, _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)(v >> 16)));
}
inline void store_bytes(uint8_t* p, WordLanes v) { _mm_storeu_si128((__m128i*)p, _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)v)); }
inline void store_words(uint16_t* p, WordLanes v) { _mm256_storeu_si256((__m256i*)p, _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)v)); }
#elif defined(USE_X86)
inline void narrow(uint16_t* p, FloatLanes v, Float16) {
    _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_words(uint16_t* p, WordLanes v) {
    const __m256i packed = _mm256_packus_epi32((__m256i)v, (__m256i)v);
    _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}
inline void store_upper(uint16_t* p, WordLanes v) { store_words(p, v >> 16); }
inline void store_bytes(uint8_t* p, WordLanes v) {
    for (int lane = 0; lane < FLOATS; lane++) p[lane] = uint8_t(v[lane]);
}
#else
typedef uint8_t QuarterWords __attribute__((vector_size(VECTOR_BYTES / 4)));
inline void store_words(uint16_t* p, WordLanes v) { store(p, __builtin_convertvector(v, HalfWords)); }
inline void store_upper(uint16_t* p, WordLanes v) { store_words(p, v >> 16); }
inline void store_bytes(uint8_t* p, WordLanes v) { store(p, __builtin_convertvector(v, QuarterWords)); }
inline void narrow(uint16_t* p, FloatLanes v, Float16) {
    const WordLanes bits = (WordLanes)v, a = bits & Float32::ABS, least = WordLanes{} + (113u << 23);
    const FloatLanes limited = (FloatLanes)(a < 0x47800000u ? a : WordLanes{} + 0x47800000u);  // 65536, which becomes inf
    WordLanes exponent = (WordLanes)limited & Float32::INF;
    exponent = exponent > least ? exponent : least;
    const FloatLanes shift = (FloatLanes)(exponent + (13u << 23) + (1u << 22));
    FloatLanes rounded = limited + shift;
    settle(rounded);
    rounded -= shift;
    const WordLanes normal = ((WordLanes)rounded >> 13) - (112u << 10);
    const WordLanes subnormal = (WordLanes)(rounded + 0.5f) - 0x3f000000u;  // near 0.5, neighboring float32 numbers are 2^-24 apart
    const WordLanes code = a > Float32::INF ? WordLanes{} + 0x7e00u : rounded < 0x1p-14f ? subnormal : normal;
    store_words(p, code | (bits >> 31) << 15);
}
#endif
// Adds 1 to lanes in which a magnitude is at least, or below, a limit. Plain comparisons would turn the processor's masks into vectors.
#if defined(USE_X86) && VECTOR_BYTES == 64
using LaneMask = __mmask16;
inline LaneMask at_least(FloatLanes a, FloatLanes b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GE_OQ); }
inline LaneMask is_finite(FloatLanes a) {
    return _mm512_cmplt_epu32_mask(_mm512_maskz_and_epi32(0xffff, (__m512i)a, _mm512_set1_epi32(Float32::ABS)), _mm512_set1_epi32(Float32::INF));
}
inline LaneMask lost(WordLanes rounded, WordLanes x) { return _mm512_mask_testn_epi32_mask(_mm512_test_epi32_mask((__m512i)x, (__m512i)x), (__m512i)rounded, (__m512i)rounded); }
inline void count(WordLanes& counts, LaneMask mask) { counts = (WordLanes)_mm512_mask_add_epi32((__m512i)counts, mask, (__m512i)counts, _mm512_set1_epi32(1)); }
inline bool any_lane(LaneMask mask) { return mask != 0; }
inline FloatLanes where(LaneMask mask, FloatLanes v) { return (FloatLanes)_mm512_maskz_mov_ps(mask, (__m512)v); }
inline FloatLanes select(LaneMask mask, FloatLanes v, FloatLanes otherwise) { return (FloatLanes)_mm512_mask_mov_ps((__m512)otherwise, mask, (__m512)v); }
#else
using LaneMask = WordLanes;
inline LaneMask at_least(FloatLanes a, FloatLanes b) { return (WordLanes)(a >= b); }
inline LaneMask is_finite(FloatLanes a) { return (WordLanes)(((WordLanes)a & Float32::ABS) < Float32::INF); }
inline LaneMask lost(WordLanes rounded, WordLanes x) { return (WordLanes)(rounded == 0u) & (WordLanes)(x != 0u); }
inline void count(WordLanes& counts, LaneMask mask) { counts -= mask; }
#if defined(USE_X86)
inline bool any_lane(LaneMask mask) { return _mm256_movemask_ps((__m256)mask) != 0; }
#else
inline bool any_lane(LaneMask mask) { return any(mask); }
#endif
inline FloatLanes where(LaneMask mask, FloatLanes v) { return (FloatLanes)((WordLanes)v & mask); }
inline FloatLanes select(LaneMask mask, FloatLanes v, FloatLanes otherwise) { return (FloatLanes)(((WordLanes)v & mask) | ((WordLanes)otherwise & ~mask)); }
#endif

inline void narrow(uint32_t* p, FloatLanes v, Float32) { store(p, v); }
inline void narrow(uint16_t* p, FloatLanes v, BFloat16) {  // a NaN with only lower bits can't come from bfloat16
    const WordLanes bits = (WordLanes)v;
    store_upper(p, bits + 0x7fffu + (bits >> 16 & 1u));
}

// ---- largest magnitudes, as bits of float32: nan is larger than inf

template <class Format>
uint32_t round_amax(const void* data, int64_t n, bool aside) {
    return Format::word(aside ? largest_magnitude<Format, NANS>(data, n) : largest_magnitude<Format, NOTHING>(data, n));
}

inline WordLanes larger(WordLanes a, WordLanes b) { return a > b ? a : b; }

inline uint32_t largest_of(WordLanes v) {
#if defined(USE_X86)
#if VECTOR_BYTES == 64
    const __m256i a = _mm512_maskz_extracti64x4_epi64(0xf, (__m512i)v, 0), b = _mm512_maskz_extracti64x4_epi64(0xf, (__m512i)v, 1);
    const __m256i w = _mm256_max_epu32(a, b);
#else
    const __m256i w = (__m256i)v;
#endif
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return uint32_t(_mm_cvtsi128_si32(m));
#else
    uint32_t most = 0;
    for (int lane = 0; lane < FLOATS; lane++) most = v[lane] > most ? v[lane] : most;
    return most;
#endif
}

template <class Format, bool ASIDE>
inline __attribute__((always_inline)) WordLanes magnitudes(const typename Format::bits* p) {
    return magnitude_of<Float32, ASIDE ? NANS : NOTHING>(widen_bits(p, Format()));
}

// For n elements, fewer than a vector holds; padded with zeros.
template <class Format, bool ASIDE>
inline WordLanes magnitudes_of_rest(const typename Format::bits* p, int64_t n) {
    typename Format::bits rest[FLOATS] = {};
    memcpy(rest, p, n * sizeof(rest[0]));
    return magnitudes<Format, ASIDE>(rest);
}

template <class Format, bool ASIDE>
inline void amax_of_blocks(const typename Format::bits* p, int64_t n, int64_t width, uint32_t* amax) {
    for (int64_t begin = 0; begin < n; begin += width) {
        const int64_t end = n - begin < width ? n : begin + width;
        WordLanes most{};
        int64_t i = begin;
        for (; i + FLOATS <= end; i += FLOATS) most = larger(most, magnitudes<Format, ASIDE>(p + i));
        if (i < end) most = larger(most, magnitudes_of_rest<Format, ASIDE>(p + i, end - i));
        *amax++ = largest_of(most);
    }
}

template <class Format>
void round_amax_blocks(const void* data, int64_t n, int64_t width, bool aside, uint32_t* amax) {
    const auto* p = static_cast<const typename Format::bits*>(data);
    if (aside) amax_of_blocks<Format, true>(p, n, width, amax);
    else amax_of_blocks<Format, false>(p, n, width, amax);
}

template <class Format, bool ASIDE>
inline void fold_magnitudes(const typename Format::bits* p, int64_t n, uint32_t* amax) {
    int64_t i = 0;
    for (; i + FLOATS <= n; i += FLOATS) store(amax + i, larger(load<WordLanes>(amax + i), magnitudes<Format, ASIDE>(p + i)));
    if (i == n) return;
    const WordLanes v = magnitudes_of_rest<Format, ASIDE>(p + i, n - i);
    for (int64_t lane = 0; lane < n - i; lane++) amax[i + lane] = v[lane] > amax[i + lane] ? v[lane] : amax[i + lane];
}

template <class Format>
void round_fold(const void* data, int64_t n, bool aside, uint32_t* amax) {
    const auto* p = static_cast<const typename Format::bits*>(data);
    if (aside) fold_magnitudes<Format, true>(p, n, amax);
    else fold_magnitudes<Format, false>(p, n, amax);
}

// ---- scales: mirrors scale_of and block_scales of numscope/precision/casting/scaling.py

inline FloatLanes power_of_two(lanes<int32_t> exponent) {  // from -127, which is subnormal, to 127
    return (FloatLanes)(exponent > -127 ? (WordLanes)(exponent + 127) << 23 : WordLanes{} + 0x00400000u);
}

// Rounds numbers between 0 and e4m3's maximum to e4m3.
inline FloatLanes to_e4m3(FloatLanes x) {
    const WordLanes lowest = WordLanes{} + (121u << 23);
    const FloatLanes shift = (FloatLanes)(larger((WordLanes)x & Float32::INF, lowest) + (20u << 23) + (1u << 22));
    FloatLanes shifted = x + shift;
    settle(shifted);
    return shifted - shift;
}

inline void scales_of(WordLanes amax, const ScaleRule& rule, FloatLanes& scale, FloatLanes& scale_inv) {
    const FloatLanes a = (FloatLanes)amax, most = FloatLanes{} + 0x1.fffffep127f;
    if (rule.kind == SCALE_E8M0_FLOOR || rule.kind == SCALE_E8M0_RCEIL) {
        lanes<int32_t> exponent = (lanes<int32_t>)(amax >> 23) - (127 + rule.max_exponent);
        if (rule.kind == SCALE_E8M0_RCEIL) {  // one more if amax's significand is above that of the format's maximum
            const WordLanes fraction = WordLanes{} + 0x007fffffu;
            exponent -= (lanes<int32_t>)((amax & fraction) > ((WordLanes)(FloatLanes{} + rule.max) & fraction));
        }
        exponent = exponent > 127 ? lanes<int32_t>{} + 127 : exponent;
        exponent = amax == Float32::INF ? lanes<int32_t>{} + 127 : exponent;
        exponent = exponent < -127 ? lanes<int32_t>{} - 127 : exponent;
        scale = power_of_two(-exponent);
        scale_inv = power_of_two(exponent);
    } else if (rule.kind == SCALE_E4M3) {
        FloatLanes wanted = a / rule.max * rule.outer;
        wanted = wanted > 448.0f ? FloatLanes{} + 448.0f : wanted;
        const FloatLanes inner = to_e4m3(wanted);
        scale = rule.outer / inner;
        scale = scale > most ? most : scale;
        scale = inner == 0.0f ? FloatLanes{} : scale;
        scale_inv = inner * (1.0f / rule.outer);
    } else {
        const FloatLanes least = FloatLanes{} + 0x1p-126f, one = FloatLanes{} + 1.0f;
        scale = rule.max / a / rule.margin;
        scale = scale < least ? least : scale;
        scale = scale > most ? most : scale;
        if (rule.power_of_two) scale = (FloatLanes)((WordLanes)scale & Float32::INF);
        scale = (WordLanes)(amax - 1u) < Float32::INF - 1u ? scale : one;  // for zero and infinity
        scale_inv = 1.0f / scale;
    }
    const FloatLanes nan = FloatLanes{} + __builtin_nanf("");
    scale = amax > Float32::INF ? nan : scale;
    scale_inv = amax > Float32::INF ? nan : scale_inv;
}

inline void round_scales(const uint32_t* amax, int64_t n, const ScaleRule& rule, float* scale, float* scale_inv) {
    for (int64_t i = 0; i < n; i += FLOATS) {
        const int64_t count = n - i < FLOATS ? n - i : FLOATS;
        uint32_t some[FLOATS] = {};
        float scales[FLOATS], inverses[FLOATS];
        memcpy(some, amax + i, count * sizeof(uint32_t));
        FloatLanes s, inv;
        scales_of(load<WordLanes>(some), rule, s, inv);
        store(scales, s);
        store(inverses, inv);
        memcpy(scale + i, scales, count * sizeof(float));
        memcpy(scale_inv + i, inverses, count * sizeof(float));
    }
}

// ---- rounding

// Formats with float32's exponents (bf16, tf32, fp32): no number is large enough to add, so they are rounded as integers.
template <class Format, bool UPPER, bool COUNT, bool EACH>
struct Rounding {
    using bits = typename Format::bits;
    using D = DoubleLanes;
    const FloatLanes max, least_over, beyond;
    const WordLanes lowest, step, half_less_1, odd, kept;
    const int shift;
    const bool saturates, signed_zero;
    WordLanes num_underflow{}, num_overflow{}, most{};
    D square_error_low{}, square_error_high{};

    explicit Rounding(const QuantizeSpec& s)
        : max(FloatLanes{} + float(s.max)), least_over(FloatLanes{} + float(s.least_over)), beyond(FloatLanes{} + float(s.beyond)),
          lowest(WordLanes{} + uint32_t(s.min_exponent + 127) * Float32::MIN_NORMAL),
          step(WordLanes{} + (uint32_t(23 - s.fraction_bits) * Float32::MIN_NORMAL + Float32::MIN_NORMAL / 2)),
          half_less_1(WordLanes{} + (s.fraction_bits < 23 ? (1u << (22 - s.fraction_bits)) - 1u : 0u)),
          odd(WordLanes{} + (s.fraction_bits < 23 ? 1u : 0u)), kept(WordLanes{} + ~((1u << (23 - s.fraction_bits)) - 1u)),
          shift(int(23 - s.fraction_bits)), saturates(s.beyond == s.max), signed_zero(s.signed_zero != 0) {}

    inline __attribute__((always_inline)) void take(const bits* from, FloatLanes scale, FloatLanes scale_inv, bits* values, float* codes) {
        const WordLanes x_bits = widen_bits(from, Format());
        const FloatLanes x = (FloatLanes)x_bits;
        FloatLanes y = x * scale;
        settle(y);
        const WordLanes magnitude = (WordLanes)y & Float32::ABS;
        const LaneMask over = at_least((FloatLanes)magnitude, least_over);
        FloatLanes rounded;
        if (UPPER) {
            const WordLanes up = (magnitude + half_less_1 + (magnitude >> shift & odd)) & kept;
            rounded = (FloatLanes)(magnitude > Float32::INF ? magnitude : up);
            rounded = rounded > max ? max : rounded;
        } else {
            FloatLanes limited = (FloatLanes)magnitude;
            limited = limited > max ? max : limited;  // NaN is kept
            WordLanes exponent = (WordLanes)limited & Float32::INF;
            exponent = exponent > lowest ? exponent : lowest;
            const FloatLanes shifted = (FloatLanes)(exponent + step);
            rounded = limited + shifted;
            settle(rounded);
            rounded -= shifted;
        }
        if (!saturates) rounded = select(over, beyond, rounded);
        FloatLanes cast = (FloatLanes)((WordLanes)rounded | ((WordLanes)y & SIGN));
        if (!signed_zero) cast += 0.0f;
        if (codes) store(codes, cast);
        const WordLanes x_magnitude = x_bits & Float32::ABS;
        most = larger(most, x_magnitude);
        if (!values && !COUNT) return;
        FloatLanes back = cast * scale_inv;
        settle(back);
        if (values) narrow(values, back, Format());
        if (!COUNT) return;
        count(num_underflow, lost((WordLanes)rounded, x_magnitude));
        count(num_overflow, over);
        const FloatLanes error = back - x;  // exact: both are multiples of the smaller one's last bit, and they are close
        const LaneMask finite = is_finite(error);
        D low, high;
        if (any_lane(over)) {
            D x_low, x_high;
            halves(where(finite, x), x_low, x_high);
            halves(where(finite, back), low, high);
            low -= x_low;
            high -= x_high;
        } else {
            halves(where(finite, error), low, high);
        }
        square_error_low += low * low;
        square_error_high += high * high;
    }

    void finish(const RoundPiece& piece, RoundCounts& out) const {
        uint32_t amax = largest_of(most);
        if (amax > Float32::INF) amax = round_amax<Format>(piece.x, piece.n, true);
        if (amax > out.amax) out.amax = amax;
        if (!COUNT) return;
        for (int lane = 0; lane < FLOATS; lane++) {
            out.num_underflow += num_underflow[lane];
            out.num_overflow += num_overflow[lane];
        }
        const D square_error = square_error_low + square_error_high;
        for (int lane = 0; lane < FLOATS / 2; lane++) out.square_error += square_error[lane];
    }
};

template <class Format, bool UPPER, bool COUNT, bool EACH>
void round_numbers(const RoundPiece& piece, const QuantizeSpec& spec, RoundCounts& out) {
    using bits = typename Format::bits;
    const bits* x = static_cast<const bits*>(piece.x);
    bits* values = static_cast<bits*>(piece.values);
    Rounding<Format, UPPER, COUNT, EACH> rounding(spec);
    FloatLanes scale{}, scale_inv{};
    if (!EACH) {
        scale += *piece.scale;
        scale_inv += *piece.scale_inv;
    }
    const auto step = [&](int64_t i) __attribute__((always_inline)) {
        __builtin_prefetch(reinterpret_cast<const char*>(x + i) + FETCH_AHEAD);
        rounding.take(x + i, scale, scale_inv, values ? values + i : nullptr, piece.rounded ? piece.rounded + i : nullptr);
    };
    int64_t i = 0;
    if (EACH && piece.width > 1) {
        for (int64_t block = 0; i + FLOATS <= piece.n; block++) {
            scale = FloatLanes{} + piece.scale[block];
            scale_inv = FloatLanes{} + piece.scale_inv[block];
            const int64_t end = (block + 1) * piece.width < piece.n ? (block + 1) * piece.width : piece.n;
            for (; i + FLOATS <= end; i += FLOATS) step(i);
            if (i < end) break;  // the rest of the last block, with its scale
        }
    } else {
        for (; i + FLOATS <= piece.n; i += FLOATS) {
            if (EACH) {
                scale = load<FloatLanes>(piece.scale + i);
                scale_inv = load<FloatLanes>(piece.scale_inv + i);
            }
            step(i);
        }
    }
    if (const int64_t n = piece.n - i) {  // padded with zeros, which change no count
        bits rest[FLOATS] = {}, rest_values[FLOATS];
        float scales[FLOATS] = {}, inverses[FLOATS] = {}, rest_codes[FLOATS];
        memcpy(rest, x + i, n * sizeof(bits));
        if (EACH && piece.width > 1) {
            scale = FloatLanes{} + piece.scale[i / piece.width];
            scale_inv = FloatLanes{} + piece.scale_inv[i / piece.width];
        } else if (EACH) {
            memcpy(scales, piece.scale + i, n * sizeof(float));
            memcpy(inverses, piece.scale_inv + i, n * sizeof(float));
            scale = load<FloatLanes>(scales);
            scale_inv = load<FloatLanes>(inverses);
        }
        rounding.take(rest, scale, scale_inv, values ? rest_values : nullptr, piece.rounded ? rest_codes : nullptr);
        if (values) memcpy(values + i, rest_values, n * sizeof(bits));
        if (piece.rounded) memcpy(piece.rounded + i, rest_codes, n * sizeof(float));
    }
    rounding.finish(piece, out);
}

template <class Format, bool EACH>
void round_piece(const RoundPiece& piece, const QuantizeSpec& spec, bool count, RoundCounts& out) {
    if (spec.min_exponent == -126) {
        if (count) round_numbers<Format, true, true, EACH>(piece, spec, out);
        else round_numbers<Format, true, false, EACH>(piece, spec, out);
    } else {
        if (count) round_numbers<Format, false, true, EACH>(piece, spec, out);
        else round_numbers<Format, false, false, EACH>(piece, spec, out);
    }
}

// ---- codes

inline WordLanes code_of(FloatLanes rounded, const QuantizeSpec& spec) {
    const WordLanes bits = (WordLanes)rounded, a = bits & Float32::ABS;
    const WordLanes is_nan = (WordLanes)(a > Float32::INF);
    if (!spec.code_sign) return is_nan ? WordLanes{} + uint32_t(spec.code_nan) : (WordLanes)(rounded + 0x1.8p23f) - 0x4b400000u;
    const int fraction = int(spec.fraction_bits), least = int(spec.min_exponent);
    WordLanes code = (a >> (23 - fraction)) - (uint32_t(126 + least) << fraction);
    if (least != -126) {
        const WordLanes shift = WordLanes{} + uint32_t(23 + least - fraction + 127) * Float32::MIN_NORMAL;
        const WordLanes subnormal = (WordLanes)((FloatLanes)a + (FloatLanes)shift) - shift;
        code = a < uint32_t(least + 127) * Float32::MIN_NORMAL ? subnormal : code;
    }
    code = a == Float32::INF ? WordLanes{} + uint32_t(spec.code_inf) : code;
    code = is_nan ? WordLanes{} + uint32_t(spec.code_nan) : code;
    return code | ((bits >> 31) * (is_nan ? WordLanes{} + uint32_t(spec.nan_sign) : WordLanes{} + uint32_t(spec.code_sign)));
}

inline void encode(const float* rounded, int64_t n, const QuantizeSpec& spec, void* codes) {
    uint8_t* bytes = static_cast<uint8_t*>(codes);
    uint16_t* words = static_cast<uint16_t*>(codes);
    int64_t i = 0;
    if (spec.code_bytes == 1) {
        for (; i + FLOATS <= n; i += FLOATS) store_bytes(bytes + i, code_of(load<FloatLanes>(rounded + i), spec));
    } else {
        for (; i + FLOATS <= n; i += FLOATS) store_words(words + i, code_of(load<FloatLanes>(rounded + i), spec));
    }
    if (i < n) {
        float rest[FLOATS] = {};
        memcpy(rest, rounded + i, (n - i) * sizeof(float));
        const WordLanes code = code_of(load<FloatLanes>(rest), spec);
        for (int64_t lane = 0; lane < n - i; lane++) {
            if (spec.code_bytes == 1) bytes[i + lane] = uint8_t(code[lane]);
            else words[i + lane] = uint16_t(code[lane]);
        }
    }
}

template <class Format>
constexpr RoundKernel round_kernel() {
    return {round_amax<Format>, round_amax_blocks<Format>, round_fold<Format>, round_scales, round_piece<Format, false>, round_piece<Format, true>, encode};
}

}  // namespace

const RoundKernels ROUND_KERNELS = {{round_kernel<Float32>(), round_kernel<BFloat16>(), round_kernel<Float16>()}};

}  // namespace numscope
