#include <cmath>
#include <cstring>

#include "summary.h"

namespace numscope {
namespace {

// Integers are finite and never subnormal. Above 2^53 they are rounded to float64, as in the reference.
template <class T>
void chunk(const void* data, int64_t n, bool moments, Row& out) {
    reset(out);
    out.numel = double(n);
    if (n == 0) return;
    const char* bytes = static_cast<const char*>(data);
    int64_t zeros = 0;
    double least = 0, most = 0, abs_least = INFINITY, abs_most = 0;
    const auto at = [bytes](int64_t i) {
        T value;
        memcpy(&value, bytes + i * sizeof(T), sizeof(T));  // the address may be odd
        return double(value);
    };
    const int64_t index = moments ? center_index(n, at) : -1;
    const double center = index < 0 ? 0 : at(index);
    double sum = 0, abs_sum = 0, square_sum = 0, cube_sum = 0, fourth_sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = at(i), magnitude = std::fabs(x), y = x - center, square = y * y;
        least = i == 0 || x < least ? x : least;
        most = i == 0 || x > most ? x : most;
        abs_most = magnitude > abs_most ? magnitude : abs_most;
        abs_least = magnitude != 0 && magnitude < abs_least ? magnitude : abs_least;
        zeros += magnitude == 0;
        if (moments) {
            sum += y;
            abs_sum += magnitude;
            square_sum += square;
            cube_sum += square * y;
            fourth_sum += square * square;
        }
    }
    out.num_zero = double(zeros);
    out.min = least;
    out.max = most;
    out.abs_min = abs_least;
    out.abs_max = abs_most;
    out.sum = sum;
    out.abs_sum = abs_sum;
    out.square_sum = square_sum;
    out.cube_sum = cube_sum;
    out.fourth_sum = fourth_sum;
    out.center = center;
}

}  // namespace

void chunk_integers(Dtype dtype, const void* data, int64_t n, int groups, Row& out) {
    const bool moments = groups & MOMENTS;
    switch (dtype) {
        case I64: return chunk<int64_t>(data, n, moments, out);
        case I32: return chunk<int32_t>(data, n, moments, out);
        case I16: return chunk<int16_t>(data, n, moments, out);
        case I8: return chunk<int8_t>(data, n, moments, out);
        default: return chunk<uint8_t>(data, n, moments, out);  // U8, and bool, whose bytes are 0 and 1
    }
}

}  // namespace numscope
