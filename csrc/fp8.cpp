#include <cmath>
#include <cstring>
#include <limits>

#include "summary.h"

namespace numscope {
namespace {

constexpr double NAN_ = std::numeric_limits<double>::quiet_NaN();
constexpr double INF_ = std::numeric_limits<double>::infinity();

struct Table {
    double value[256];
    bool subnormal[256];
};

// Source: OCP 8-bit Floating Point Specification 1.0 for e4m3fn and e5m2. The fnuz formats have one zero, a NaN at 0x80, a bias larger by 1.
void fill(Table& table, int exponent_bits, bool fnuz) {
    const int fraction_bits = 7 - exponent_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1 + (fnuz ? 1 : 0);
    const int top = (1 << exponent_bits) - 1;
    for (int code = 0; code < 256; code++) {
        const int exponent = (code >> fraction_bits) & top, fraction = code & ((1 << fraction_bits) - 1);
        const int significand = exponent ? fraction + (1 << fraction_bits) : fraction;
        double v = std::ldexp(significand, (exponent ? exponent : 1) - bias - fraction_bits);
        if (fnuz) {
            if (code == 0x80) v = NAN_;
        } else if (exponent_bits == 5 && exponent == top) {
            v = fraction ? NAN_ : INF_;
        } else if (exponent_bits == 4 && (code & 0x7f) == 0x7f) {
            v = NAN_;
        }
        table.value[code] = code & 0x80 ? -v : v;
        table.subnormal[code] = exponent == 0 && fraction != 0;
    }
}

struct Tables {
    Table of[4];
    Tables() {
        fill(of[E4M3FN - E4M3FN], 4, false);
        fill(of[E5M2 - E4M3FN], 5, false);
        fill(of[E4M3FNUZ - E4M3FN], 4, true);
        fill(of[E5M2FNUZ - E4M3FN], 5, true);
    }
};

const Table& table_of(Dtype dtype) {
    static const Tables tables;
    return tables.of[dtype - E4M3FN];
}

void add_code(Row& out, const Table& table, int code, double count) {
    const double x = table.value[code];
    if (std::isnan(x)) {
        out.num_nan += count;
    } else if (std::isinf(x)) {
        (x > 0 ? out.num_pos_inf : out.num_neg_inf) += count;
    } else {
        const double magnitude = std::fabs(x);
        if (x < out.min) out.min = x + 0.0;
        if (x > out.max) out.max = x + 0.0;
        if (magnitude > out.abs_max) out.abs_max = magnitude;
        if (magnitude == 0) {
            out.num_zero += count;
            return;
        }
        if (magnitude < out.abs_min) out.abs_min = magnitude;
        if (table.subnormal[code]) out.num_subnormal += count;
    }
}

void add_moments(Row& out, double x, double count) {
    if (std::isnan(x) || std::isinf(x)) return;
    const double y = x - out.center, square = y * y;
    out.sum += count * y;
    out.abs_sum += count * std::fabs(x);
    out.square_sum += count * square;
    out.cube_sum += count * (square * y);
    out.fourth_sum += count * square * square;
}

}  // namespace

const double* fp8_values(Dtype dtype) { return table_of(dtype).value; }

void chunk_fp8(Dtype dtype, const uint8_t* data, int64_t n, int groups, Row& out) {
    const Table& table = table_of(dtype);
    const bool moments = groups & MOMENTS;
    reset(out);
    out.numel = double(n);
    uint32_t counts[8][256];  // eight histograms: with one, equal neighbors would wait for each other's store
    memset(counts, 0, sizeof counts);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t eight;
        memcpy(&eight, data + i, 8);
        for (int lane = 0; lane < 8; lane++) counts[lane][(eight >> (8 * lane)) & 0xff]++;
    }
    for (; i < n; i++) counts[0][data[i]]++;
    for (int code = 0; code < 256; code++) {
        for (int lane = 1; lane < 8; lane++) counts[0][code] += counts[lane][code];
        if (counts[0][code]) add_code(out, table, code, double(counts[0][code]));
    }
    if (!moments) return;
    const int64_t index = center_index(n, [&](int64_t i) { return table.value[data[i]]; });
    if (index >= 0) out.center = table.value[data[index]];
    for (int code = 0; code < 256; code++)
        if (counts[0][code]) add_moments(out, table.value[code], double(counts[0][code]));
}

}  // namespace numscope
