// Casts to narrow formats: scales, rounds, dequantizes and counts in one pass. numscope/precision/casting/native_cast.py calls it.
#pragma once

#include <cstdint>

#include "summary.h"

namespace numscope {

constexpr int64_t LONGEST_VECTOR = 16;  // of float32

enum ScaleKind : int64_t { SCALE_FLOAT32, SCALE_E8M0_FLOOR, SCALE_E4M3, SCALE_E8M0_RCEIL, NUM_SCALE_KINDS };

// How a tensor is quantized, packed by Python in fields of 8 bytes. The format's numbers come from numscope/records/formats.py.
struct QuantizeSpec {
    int64_t fraction_bits, min_exponent;  // of the smallest normal number, as a power of two
    double max;                           // largest finite number
    double least_over;                    // the smallest magnitude that rounds above max
    double beyond;                        // the result in that case: max, inf or NaN
    int64_t signed_zero;
    int64_t code_inf, code_nan;
    int64_t code_sign, nan_sign;  // added to a negative number's code, and to the code of a negative NaN; code_sign 0: two's complement
    int64_t code_bytes;
    int64_t scale_kind, power_of_two, margin;
    int64_t nan_takes_block;              // a NaN makes its block's scale NaN; otherwise it affects only its element
    int64_t block_rows, block_columns;    // size of a block that shares a scale; 0: all
};

// How scales follow from amaxes.
struct ScaleRule {
    int64_t kind;
    bool power_of_two;
    int max_exponent;  // of the format, minus the margin
    float max, margin;
    float outer;  // the tensor's scale, which multiplies its e4m3 scales
};

struct RoundCounts {
    int64_t num_underflow, num_overflow;
    double square_error;
    uint32_t amax;  // bits of the largest |x|, ignoring NaN
};

// A run of elements with one scale, or with one scale per `width` elements (1, or a multiple of LONGEST_VECTOR).
struct RoundPiece {
    const void* x;
    int64_t n, width;
    const float *scale, *scale_inv;
    void* values;    // of x's dtype, or null
    float* rounded;  // the numbers that codes are computed from, or null
};

// Magnitudes are bits of float32, so NaN is larger than inf; with `aside`, NaN counts as 0.
struct RoundKernel {
    uint32_t (*amax)(const void* x, int64_t n, bool aside);
    void (*amax_blocks)(const void* x, int64_t n, int64_t width, bool aside, uint32_t* amax);  // of consecutive elements; overwrites amax
    void (*fold)(const void* x, int64_t n, bool aside, uint32_t* amax);                        // keeps the larger of each pair of elements
    void (*scales)(const uint32_t* amax, int64_t n, const ScaleRule& rule, float* scale, float* scale_inv);
    void (*round)(const RoundPiece& piece, const QuantizeSpec& spec, bool count, RoundCounts& out);
    void (*round_each)(const RoundPiece& piece, const QuantizeSpec& spec, bool count, RoundCounts& out);
    void (*encode)(const float* rounded, int64_t n, const QuantizeSpec& spec, void* codes);
};

// One table for each instruction set, from quantize_kernel.h: float32, bfloat16, float16.
struct RoundKernels {
    RoundKernel of[3];
};
extern const RoundKernels round_kernels_baseline;
#if defined(__x86_64__)
extern const RoundKernels round_kernels_avx2;
extern const RoundKernels round_kernels_avx512;
#endif

// Memory that a call reads and writes; a null output is not wanted.
struct QuantizeCall {
    const void* x;  // [rows, columns]
    int64_t rows, columns;
    Dtype dtype;            // F32, BF16 or F16
    const float* scale;     // for all of x; null: scales follow from amaxes
    void* values;           // of x's dtype
    void* codes;
    float* scale_inv;       // one for each block
    double* cells;          // numel, num_underflow, num_overflow, square_error, largest scale, largest scale_inv: merged into
    float* amax;            // merged into
};

// Returns false if memory could not be allocated.
bool quantize(const QuantizeCall& call, const QuantizeSpec& spec, int num_threads);

// Whether this cast is supported: a block of many rows and many columns is too large, unless it is the whole matrix.
bool quantizes(const QuantizeCall& call, const QuantizeSpec& spec);

// The largest magnitude, ignoring NaN.
float quantize_amax(const void* x, int64_t numel, Dtype dtype, int num_threads);

}  // namespace numscope
