// The kernels of extra columns, compiled once for each instruction set.
//
// Each piece fits the first-level cache. It is read as float32 (through a buffer for 16-bit formats) or float64 and passed to each kernel.

#include <cmath>

#include "extras.h"
#include "lanes.h"

namespace numscope {
namespace {

constexpr int64_t PIECE = 2048;  // elements; at least one block

// ---- a piece in the wider of float32 and the tensor's own format

template <class Format>
struct Wide {
    using Of = Format;
};
template <>
struct Wide<BFloat16> {
    using Of = Float32;
};
template <>
struct Wide<Float16> {
    using Of = Float32;
};

inline const uint32_t* as_wide(const uint32_t* data, int64_t, uint32_t*, Float32) { return data; }
inline const uint64_t* as_wide(const uint64_t* data, int64_t, uint64_t*, Float64) { return data; }
template <class Format>
inline const uint32_t* as_wide(const uint16_t* data, int64_t n, uint32_t* buffer, Format format) {
    int64_t i = 0;
    for (; i + FLOATS <= n; i += FLOATS) store(buffer + i, widen_bits(data + i, format));
    for (; i < n; i++) buffer[i] = Format::word(data[i]);
    return buffer;
}

// The processor's prefetcher stops at each page, so kernels prefetch the corresponding part of the next piece. A prefetch never faults, even
// past the tensor's end.
struct Next {
    const char* from;
    int64_t bytes;  // of an element

    inline __attribute__((always_inline)) void fetch(int64_t element) const { __builtin_prefetch(from + element * bytes); }
};

template <class Format, class Take>  // Take(const wide bits*, count, Next)
inline void each_piece(const void* data, int64_t n, Take take) {
    using bits = typename Format::bits;
    using wide = typename Wide<Format>::Of::bits;
    alignas(64) wide buffer[PIECE];
    const bits* p = static_cast<const bits*>(data);
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t count = n - i < PIECE ? n - i : PIECE;
        take(as_wide(p + i, count, buffer, Format()), count, Next{reinterpret_cast<const char*>(p + i + count), sizeof(bits)});
    }
}

// ---- exponents

inline int exponent_bin(uint32_t b) { return int(b >> 23 & 0xff); }
// The exponent field in float32, 255 above float32's range, or -1 for an element that is not finite.
inline int exponent_bin(uint64_t b) {
    const int exponent = int(b >> 52 & 0x7ff);
    if (exponent == 0x7ff) return -1;
    const int bin = exponent - 1023 + 127;
    return bin < 0 ? 0 : bin > 255 ? 255 : bin;
}

inline void count_exponents(const uint32_t* data, int64_t n, Next next, double* counts) {
    uint32_t seen[8][NUM_EXPONENTS];  // otherwise equal neighbors would wait for each other's store
    memset(seen, 0, sizeof seen);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        next.fetch(i);
        for (int lane = 0; lane < 8; lane++) seen[lane][exponent_bin(load<uint32_t>(data + i + lane))]++;
    }
    for (; i < n; i++) seen[0][exponent_bin(load<uint32_t>(data + i))]++;
    for (int bin = 0; bin < NUM_EXPONENTS - 1; bin++) {  // the last bin counts infinities and NaN
        uint32_t count = 0;
        for (int lane = 0; lane < 8; lane++) count += seen[lane][bin];
        counts[bin] += double(count);
    }
}
inline void count_exponents(const uint64_t* data, int64_t n, Next, double* counts) {
    for (int64_t i = 0; i < n; i++) {
        const int bin = exponent_bin(load<uint64_t>(data + i));
        if (bin >= 0) counts[bin] += 1;
    }
}

template <class Format>
void exponents(const void* data, int64_t n, double* counts) {
    each_piece<Format>(data, n, [&](const auto* piece, int64_t count, Next next) { count_exponents(piece, count, next, counts); });
}

// ---- blocks

// The widest range so far, in powers of two. Bit patterns give a block's range to within 0.0861, because exponent and fraction together are a
// piecewise linear logarithm. Logarithms are computed only for a block that may be wider.
template <class Format>
struct Widest {
    using bits = typename Format::bits;
    using sbits = typename Format::sbits;
    static constexpr double ONE = double(Format::MIN_NORMAL), MOST = double(Format::INF) / ONE;  // one power of two in bits; their number
    double range;
    sbits dull;

    explicit Widest(double so_far) { set(so_far); }
    void set(double wider) {
        range = wider;
        dull = sbits(((range < MOST ? range : MOST) - 0.0862) * ONE);
    }
    inline void consider(bits high, bits low_less_1) {
        const bits low = low_less_1 + 1;
        if (high == low) return;  // both are 0 if no element counts
        if (sbits(high - low) <= dull && low >= Format::MIN_NORMAL) return;
        const double wider = std::log2(Format::value(high)) - std::log2(Format::value(low));
        if (wider > range) set(wider);
    }
};

template <class Format>
struct Extremes {
    using bits = typename Format::bits;
    using U = lanes<bits>;
    U high, low_less_1;

    void clear() {
        high = U{};
        low_less_1 = ~U{};
    }
    inline __attribute__((always_inline)) void take(U b) {
        const U magnitude = b & Format::ABS;
        const U finite = magnitude & (U)(magnitude < Format::INF);
        const U low = finite - bits(1);  // for zero it wraps to the top and drops out of the minimum
        high = finite > high ? finite : high;
        low_less_1 = low < low_less_1 ? low : low_less_1;
    }
};

template <class Format>
inline void take_one(typename Format::bits b, typename Format::bits& high, typename Format::bits& low_less_1) {
    using bits = typename Format::bits;
    bits magnitude = b & Format::ABS;
    magnitude = magnitude < Format::INF ? magnitude : 0;
    const bits low = magnitude - bits(1);
    high = magnitude > high ? magnitude : high;
    low_less_1 = low < low_less_1 ? low : low_less_1;
}

template <class Format>
inline void blocks_of_row(const typename Format::bits* row, int64_t n, Next next, int64_t size, Widest<Format>& widest) {
    using bits = typename Format::bits;
    using E = Extremes<Format>;
    constexpr int64_t WIDTH = VECTOR_BYTES / sizeof(bits);
    for (int64_t begin = 0; begin < n; begin += size) {
        const int64_t end = begin + size < n ? begin + size : n;
        bits high = 0, low = ~bits(0);
        int64_t i = begin;
        if (end - begin >= WIDTH) {
            E e;
            e.clear();
            for (; i + WIDTH <= end; i += WIDTH) {
                e.take(load<typename E::U>(row + i));
                next.fetch(i);
            }
            for (int lane = 0; lane < WIDTH; lane++) {
                high = e.high[lane] > high ? e.high[lane] : high;
                low = e.low_less_1[lane] < low ? e.low_less_1[lane] : low;
            }
        }
        for (; i < end; i++) take_one<Format>(load<bits>(row + i), high, low);
        widest.consider(high, low);
    }
}

template <class Format>
inline void fold_row(const typename Format::bits* row, int64_t n, Next next, typename Format::bits* high, typename Format::bits* low) {
    using bits = typename Format::bits;
    using E = Extremes<Format>;
    constexpr int64_t WIDTH = VECTOR_BYTES / sizeof(bits);
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        E e{load<typename E::U>(high + i), load<typename E::U>(low + i)};
        e.take(load<typename E::U>(row + i));
        next.fetch(i);
        store(high + i, e.high);
        store(low + i, e.low_less_1);
    }
    for (; i < n; i++) take_one<Format>(load<bits>(row + i), high[i], low[i]);
}

template <class Format>
double blocks(const Tile& tile, int64_t size, int orientations, uint64_t* scratch, double so_far) {
    using Wider = typename Wide<Format>::Of;
    using wide = typename Wider::bits;
    Widest<Wider> widest(so_far);
    wide* high = reinterpret_cast<wide*>(scratch);
    wide* low = high + tile.columns;
    const int64_t step = PIECE / size * size;  // whole blocks
    const bool fold = orientations & (ALONG_COLUMNS | SQUARES);
    alignas(64) wide buffer[PIECE];
    if (fold) {
        memset(high, 0, tile.columns * sizeof(wide));
        memset(low, 0xff, tile.columns * sizeof(wide));
    }
    for (int64_t begin = 0; begin < tile.columns; begin += step) {
        const int64_t n = tile.columns - begin < step ? tile.columns - begin : step;
        for (int64_t r = 0; r < tile.rows; r++) {
            const char* line = static_cast<const char*>(tile.data) + r * tile.row_bytes;
            const auto* row = reinterpret_cast<const typename Format::bits*>(line) + begin;
            const wide* bits = as_wide(row, n, buffer, Format());
            const Next next{reinterpret_cast<const char*>(row) + tile.row_bytes, sizeof(typename Format::bits)};
            if (orientations & ALONG_ROWS) blocks_of_row<Wider>(bits, n, next, size, widest);
            if (fold) fold_row<Wider>(bits, n, next, high + begin, low + begin);
        }
    }
    if (orientations & ALONG_COLUMNS)
        for (int64_t c = 0; c < tile.columns; c++) widest.consider(high[c], low[c]);
    if (orientations & SQUARES) {
        for (int64_t begin = 0; begin < tile.columns; begin += size) {
            wide most = 0, least = ~wide(0);
            for (int64_t c = begin; c < tile.columns && c < begin + size; c++) {
                most = high[c] > most ? high[c] : most;
                least = low[c] < least ? low[c] : least;
            }
            widest.consider(most, least);
        }
    }
    return widest.range;
}

template <class Format>
constexpr ExtraKernel extra_kernel() {
    return {exponents<Format>, blocks<Format>};
}

}  // namespace

const ExtraKernels EXTRA_KERNELS = {{extra_kernel<Float32>(), extra_kernel<Float64>(), extra_kernel<BFloat16>(), extra_kernel<Float16>()}};

}  // namespace numscope
