// A tensor's summary as kernels see it: a row of 16 doubles, in the order defined by numscope/summary/state.py, and the functions that fill it.
#pragma once

#include <cstdint>

namespace numscope {

// Order and width mirror FIELDS and ROW_WIDTH of state.py; a test compares them.
struct Row {
    double numel, num_nan, num_pos_inf, num_neg_inf, num_zero, num_subnormal;
    double min, max, abs_min, abs_max;
    double sum, abs_sum, square_sum, cube_sum, fourth_sum;  // of powers of x - center; abs_sum is that of |x|. NaN: not known
    double center;
};
static_assert(sizeof(Row) == 128, "a row is 16 doubles, two cache lines");

// The sample by which a chunk's center is chosen: equally spaced elements.
constexpr int64_t CENTER_SAMPLE = 8;

void reset(Row& row);
void merge(Row& into, const Row& part);

// The two parts of a compensated sum as one number. After an overflow the error term is NaN, and the sum alone is returned.
inline double settled(double high, double low) { return low - low == 0 ? high + low : high; }

// Merges rows in order and keeps the rounding errors of their sums to the end.
class Fold {
public:
    Fold();
    void add(const Row& part);
    Row total() const;

private:
    Row total_;
    double error_[5];
};

enum Dtype : int { F32, F64, BF16, F16, E4M3FN, E5M2, E4M3FNUZ, E5M2FNUZ, I64, I32, I16, I8, U8, BOOL, NUM_DTYPES };
// Health is always computed, because sums must know which elements are finite; the third and fourth powers' come with the others.
enum Groups : int { HEALTH = 1, MOMENTS = 2, HIGHER = 4 };

// Elements per task. Chunks are merged in order, so sums do not depend on the number of threads.
constexpr int64_t CHUNK = 65536;

// Summarizes n <= CHUNK elements into `out`, which it overwrites.
using ChunkKernel = void (*)(const void* data, int64_t n, int groups, Row& out);

// One table of the wide formats for each compiled instruction set, all from the same source, kernel.h.
struct Kernels {
    const char* isa;
    ChunkKernel f32, f64, bf16, f16;
};
extern const Kernels kernels_baseline;
#if defined(__x86_64__)
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#endif

// fp8 has 256 codes, so a histogram of codes contains everything.
void chunk_fp8(Dtype dtype, const uint8_t* data, int64_t n, int groups, Row& out);
const double* fp8_values(Dtype dtype);  // of the 256 codes

// Integers have no NaN and tensors of them are seldom large, so plain loops are enough.
void chunk_integers(Dtype dtype, const void* data, int64_t n, int groups, Row& out);

namespace {  // internal linkage: kernels of several instruction sets include this

// The index of a provisional center, or -1 for 0. Sums about an element lose no digits where the mean is far above the deviation. Where
// the elements of a sample are not all of one sign and within a factor of two, a center of 0 loses none either, and keeps the sums plain.
template <class At>
inline int64_t center_index(int64_t n, At at) {
    const int64_t stride = n > CENTER_SAMPLE ? n / CENTER_SAMPLE : 1;
    int64_t index = -1;
    double least = 0, most = 0, sign = 0;
    for (int64_t i = 0, taken = 0; i < n && taken < CENTER_SAMPLE; i += stride, taken++) {
        const double x = at(i), magnitude = x < 0 ? -x : x;
        if (!(magnitude - magnitude == 0)) continue;
        if (magnitude == 0 || (sign != 0 && (x < 0) != (sign < 0))) return -1;
        if (index < 0 || magnitude < least) {
            least = magnitude;
            index = i;
        }
        most = magnitude > most ? magnitude : most;
        sign = x;
    }
    return most / 2 <= least ? index : -1;
}

}  // namespace

inline int element_bytes(Dtype dtype) {
    switch (dtype) {
        case F64: case I64: return 8;
        case F32: case I32: return 4;
        case BF16: case F16: case I16: return 2;
        default: return 1;
    }
}

}  // namespace numscope
