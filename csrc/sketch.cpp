#include "sketch.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "checksum.h"
#include "pool.h"
#include "select.h"

#define VECTOR_BYTES 16  // for the number formats alone
#include "lanes.h"

namespace numscope {
namespace {

constexpr int64_t BLOCK = 512;                 // elements that are converted at a time: all of it stays in the first cache
constexpr int64_t TASK = 65536;                // elements; results of tasks are added in order, whatever the number of threads
constexpr int64_t PARALLEL_NUMEL = 1 << 17;    // below, waking a sleeping thread costs more than it saves

constexpr int GROUP = 8, TIMES = SKETCH_SUMS / GROUP;

#if defined(__clang__)
template <class V, class I>
inline __attribute__((always_inline)) V shuffled(const V& x, const I& index) {
    V y;
    for (unsigned i = 0; i < sizeof(V) / sizeof(x[0]); i++) y[i] = x[index[i]];
    return y;
}
#define SHUFFLED(x, index) shuffled(x, index)
#else
#define SHUFFLED(x, index) __builtin_shuffle(x, index)
#endif

// lowbias32 (Wellons: Prospecting for hash functions, 2018): of 32-bit permutations of this form the one with the least bias.
constexpr uint32_t FIRST_FACTOR = 0x21f0aaad, SECOND_FACTOR = 0x735a2d97;
inline uint32_t mixed(uint32_t x) {
    x = (x ^ (x >> 16)) * FIRST_FACTOR;
    x = (x ^ (x >> 15)) * SECOND_FACTOR;
    return x ^ (x >> 15);
}

template <class T>
struct Bits;
template <>
struct Bits<float> {
    using type = uint32_t;
    static constexpr type INF = 0x7f800000u;
    static constexpr int HASH_SHIFT = 0;
};
template <>
struct Bits<double> {
    using type = uint64_t;
    static constexpr type INF = 0x7ff0000000000000ull;
    static constexpr int HASH_SHIFT = 32;
};

template <class T, int LANES>
struct Vectors {
    typedef T values __attribute__((vector_size(LANES * sizeof(T))));
    typedef typename Bits<T>::type words __attribute__((vector_size(LANES * sizeof(T))));
    typedef double doubles __attribute__((vector_size(LANES * 8)));
};

template <class T, int LANES>
struct Totals {
    using V = Vectors<T, LANES>;
    using Half = Vectors<T, LANES / 2>;
    typename V::doubles sums[TIMES]{};
    typename Half::doubles sum{}, square_sum{};
    typename V::words num_nonfinite{};
};

// A block's elements, of which the first one's index is a multiple of GROUP. Float32 accumulates over one block and is added up in float64.
template <class T, int LANES>
inline __attribute__((always_inline)) void add(T (&values)[BLOCK], int64_t n, int64_t index, Totals<T, LANES>& totals) {
    using V = Vectors<T, LANES>;
    using Half = Vectors<T, LANES / 2>;
    using bits = typename Bits<T>::type;
    constexpr bits INF = Bits<T>::INF, SIGN = bits(1) << (8 * sizeof(T) - 1);
    const int64_t padded = (n + LANES - 1) / LANES * LANES;
    for (int64_t i = n; i < padded; i++) values[i] = 0;
    const uint32_t key = mixed(uint32_t(uint64_t(index) >> 32) + 0x9e3779b9u);
    typename V::words lanes, firsts;
    for (int lane = 0; lane < LANES; lane++) {
        lanes[lane] = lane;
        firsts[lane] = lane / GROUP * GROUP;
    }
    typename V::values sums[TIMES]{};
    typename V::words num_nonfinite{};
    for (int64_t i = 0; i < padded; i += LANES) {
        typename V::words x;
        memcpy(&x, values + i, sizeof x);
        const typename V::words bad = (typename V::words)((x & INF) == INF);
        num_nonfinite -= bad;
        x &= ~bad;
        memcpy(values + i, &x, sizeof x);
        typename V::words hash = (lanes + bits(uint32_t(index + i))) ^ key;
        hash = (hash ^ (hash >> 16)) * bits(FIRST_FACTOR);
        if (sizeof(T) == 8) hash &= 0xffffffff;
        hash = (hash ^ (hash >> 15)) * bits(SECOND_FACTOR);
        if (sizeof(T) == 8) hash &= 0xffffffff;
        hash ^= hash >> 15;
        const typename V::words groups = SHUFFLED(hash, firsts);
        hash <<= Bits<T>::HASH_SHIFT;
#pragma GCC unroll 4
        for (int t = 0; t < TIMES; t++) {
            const typename V::words with_sign = x ^ ((hash << t) & SIGN);
            sums[t] += (typename V::values)SHUFFLED(with_sign, lanes ^ ((groups >> 3 * t) & (GROUP - 1)));
        }
    }
    totals.num_nonfinite += num_nonfinite;
    for (int t = 0; t < TIMES; t++) totals.sums[t] += __builtin_convertvector(sums[t], typename V::doubles);
    typename Half::doubles sum{}, square_sum{};
    for (int64_t i = 0; i < padded; i += LANES / 2) {
        typename Half::values x;
        memcpy(&x, values + i, sizeof x);
        const typename Half::doubles wide = __builtin_convertvector(x, typename Half::doubles);
        sum += wide;
        square_sum += wide * wide;
    }
    totals.sum += sum;
    totals.square_sum += square_sum;
}

// Each element as the two 16-bit formats have it, to nearest, ties to even; one nan for all.
template <int LANES>
inline __attribute__((always_inline)) void round_to_16_bits(const float* values, int64_t n, uint16_t (&rounded)[NUM_ROUNDINGS][BLOCK]) {
    using V = Vectors<float, LANES>;
    using words = typename V::words;
    typedef uint16_t halves __attribute__((vector_size(LANES * 2)));
    constexpr uint32_t INF = Bits<float>::INF, HALF = 0x3f000000u;  // 0.5, beside which a float32 has float16's smallest unit
    constexpr uint32_t LEAST_NORMAL = 113u << 23, BEYOND = 143u << 23, BIAS = 112u << 23;  // float16's 2^-14 and 2^16, and 2^-15
    for (int64_t i = 0; i < n; i += LANES) {
        words x;
        memcpy(&x, values + i, sizeof x);
        const words size = x & 0x7fffffffu, is_nan = (words)(size > INF);
        const words as_bfloat16 = (x + 0x7fffu + ((x >> 16) & 1)) >> 16;
        const words small = (words)((typename V::values)(size & (words)(size < LEAST_NORMAL)) + 0.5f) - HALF;
        words normal = (size - BIAS + 0xfffu + ((size >> 13) & 1)) >> 13;
        const words is_beyond = (words)(size >= BEYOND), is_small = (words)(size < LEAST_NORMAL);
        normal = (normal & ~is_beyond) | (0x7c00u & is_beyond);
        const words as_float16 = ((normal & ~is_small) | (small & is_small)) | ((x >> 16) & 0x8000u);
        const halves found[] = {__builtin_convertvector((as_bfloat16 & ~is_nan) | (0x7fc0u & is_nan), halves),
                                __builtin_convertvector((as_float16 & ~is_nan) | (0x7e00u & is_nan), halves)};
        for (int k = 0; k < NUM_ROUNDINGS; k++) memcpy(rounded[k] + i, &found[k], sizeof found[k]);
    }
}

inline const float* as_float32(const float (&values)[BLOCK], float (&)[BLOCK]) { return values; }
inline const float* as_float32(const double (&values)[BLOCK], float (&space)[BLOCK]) {
    for (int64_t i = 0; i < BLOCK; i++) space[i] = float(values[i]);
    return space;
}

// A block of 2^32 elements has one key, so no block of a task may lie across two.
inline int64_t until_next_key(int64_t index) { return (int64_t(1) << 32) - (index & 0xffffffff); }

template <class T, class Convert, int LANES>
inline __attribute__((always_inline)) void walk(const SketchEntry& entry, int64_t begin, int64_t end, bool rounds, Convert convert, Sketch& out) {
    const int64_t item = element_bytes(Dtype(entry.dtype));
    const char* data = reinterpret_cast<const char*>(entry.address);
    Totals<T, LANES> totals;
    alignas(64) T block[BLOCK]{};
    alignas(64) float space[BLOCK];
    alignas(64) uint16_t rounded[NUM_ROUNDINGS][BLOCK];
    while (begin < end) {
        const int64_t row = begin / entry.run, within = begin % entry.run;
        int64_t index = entry.first + within;
        if (entry.layout) {
            const int64_t dims = *reinterpret_cast<const int64_t*>(entry.layout);
            const int64_t *sizes = reinterpret_cast<const int64_t*>(entry.layout) + 1, *steps = sizes + dims;
            for (int64_t d = dims - 1, rest = row; d >= 0; d--) {
                index += rest % sizes[d] * steps[d];
                rest /= sizes[d];
            }
        }
        int64_t left = entry.run - within < end - begin ? entry.run - within : end - begin;
        while (left > 0) {
            const int64_t before = index % GROUP, room = BLOCK - before, key = until_next_key(index), most = room < key ? room : key;
            const int64_t n = left < most ? left : most;
            const char* at = data + begin * item;
            out.checksum += checksum_bytes(at, n * item, index * item);
            for (int64_t i = 0; i < before; i++) block[i] = 0;
            convert(at, n, block + before);
            if (rounds) {
                round_to_16_bits<LANES>(as_float32(block, space), before + n, rounded);
                for (int k = 0; k < NUM_ROUNDINGS; k++)
                    out.rounded[k] += checksum_bytes(reinterpret_cast<const char*>(rounded[k] + before), 2 * n, 2 * index);
            }
            add<T, LANES>(block, before + n, index - before, totals);
            begin += n;
            index += n;
            left -= n;
        }
    }
    for (int lane = 0; lane < LANES / 2; lane++) {
        out.sum += totals.sum[lane];
        out.square_sum += totals.square_sum[lane];
    }
    for (int lane = 0; lane < LANES; lane++) {
        out.num_nonfinite += double(totals.num_nonfinite[lane]);
        for (int t = 0; t < TIMES; t++) out.sums[t * GROUP + lane % GROUP] += totals.sums[t][lane];
    }
}

// Elements of n bytes each, at any address, as T.
template <class From, class T>
struct Converted {
    void operator()(const char* data, int64_t n, T* to) const {
        for (int64_t i = 0; i < n; i++) {
            From value;
            memcpy(&value, data + i * sizeof(From), sizeof value);
            to[i] = T(value);
        }
    }
};
template <class T>
struct Copied {
    void operator()(const char* data, int64_t n, T* to) const { memcpy(to, data, n * sizeof(T)); }
};
template <class Format>
struct Widened {
    void operator()(const char* data, int64_t n, float* to) const {
        for (int64_t i = 0; i < n; i++) {
            uint16_t half;
            memcpy(&half, data + 2 * i, 2);
            const uint32_t word = Format::word(half);
            memcpy(to + i, &word, 4);
        }
    }
};
struct Decoded {
    const double* values;
    void operator()(const char* data, int64_t n, float* to) const {
        for (int64_t i = 0; i < n; i++) to[i] = float(values[uint8_t(data[i])]);
    }
};

template <int N>
inline __attribute__((always_inline)) void of_task(const SketchEntry& entry, int64_t begin, int64_t end, bool rounds, Sketch& out) {
    switch (Dtype(entry.dtype)) {
        case F32: return walk<float, Copied<float>, N>(entry, begin, end, rounds, {}, out);
        case BF16: return walk<float, Widened<BFloat16>, N>(entry, begin, end, rounds, {}, out);
        case F16: return walk<float, Widened<Float16>, N>(entry, begin, end, rounds, {}, out);
        case F64: return walk<double, Copied<double>, 8>(entry, begin, end, rounds, {}, out);
        case I64: return walk<double, Converted<int64_t, double>, 8>(entry, begin, end, rounds, {}, out);
        case I32: return walk<double, Converted<int32_t, double>, 8>(entry, begin, end, rounds, {}, out);
        case I16: return walk<float, Converted<int16_t, float>, N>(entry, begin, end, rounds, {}, out);
        case I8: return walk<float, Converted<int8_t, float>, N>(entry, begin, end, rounds, {}, out);
        case U8:
        case BOOL: return walk<float, Converted<uint8_t, float>, N>(entry, begin, end, rounds, {}, out);
        default: return walk<float, Decoded, N>(entry, begin, end, rounds, {fp8_values(Dtype(entry.dtype))}, out);
    }
}

using OfTask = void (*)(const SketchEntry& entry, int64_t begin, int64_t end, bool rounds, Sketch& out);

void of_task_baseline(const SketchEntry& entry, int64_t begin, int64_t end, bool rounds, Sketch& out) { of_task<8>(entry, begin, end, rounds, out); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) void of_task_avx2(const SketchEntry& entry, int64_t begin, int64_t end, bool rounds, Sketch& out) {
    of_task<8>(entry, begin, end, rounds, out);
}

#if defined(__clang__)
#define WIDE __attribute__((target("avx512f,avx512dq,avx512vl"), min_vector_width(512)))
#else
#define WIDE __attribute__((target("avx512f,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
WIDE void of_task_avx512(const SketchEntry& entry, int64_t begin, int64_t end, bool rounds, Sketch& out) { of_task<16>(entry, begin, end, rounds, out); }
#endif

OfTask chosen() {
#if defined(__x86_64__)
    if (!strcmp(isa(), "avx512")) return of_task_avx512;
    if (!strcmp(isa(), "avx2")) return of_task_avx2;
#endif
    return of_task_baseline;
}

struct Task {
    int64_t entry, begin, end;
};

struct Batch {
    const SketchEntry* entries;
    const Task* tasks;
    Sketch* found;  // a task each
    OfTask of_task;
    bool rounds;

    static void run(void* context, int64_t index) {
        const Batch& batch = *static_cast<Batch*>(context);
        const Task& task = batch.tasks[index];
        batch.of_task(batch.entries[task.entry], task.begin, task.end, batch.rounds, batch.found[index]);
    }
};

}  // namespace

void sketch(const SketchEntry* entries, int64_t num_entries, Sketch* out, bool rounds, int num_threads) {
    std::vector<Task> tasks;
    int64_t total = 0;
    for (int64_t e = 0; e < num_entries; e++) {
        total += entries[e].numel;
        for (int64_t begin = 0; begin < entries[e].numel; begin += TASK)
            tasks.push_back({e, begin, begin + TASK < entries[e].numel ? begin + TASK : entries[e].numel});
    }
    std::vector<Sketch> found(tasks.size());  // zeros
    Batch batch{entries, tasks.data(), found.data(), chosen(), rounds};
    run_tasks(int64_t(tasks.size()), total < PARALLEL_NUMEL ? 1 : num_threads, Batch::run, &batch);
    for (int64_t e = 0; e < num_entries; e++) out[e] = Sketch{};
    for (size_t t = 0; t < tasks.size(); t++) {
        Sketch& into = out[tasks[t].entry];
        into.checksum += found[t].checksum;
        for (int k = 0; k < NUM_ROUNDINGS; k++) into.rounded[k] += found[t].rounded[k];
        into.num_nonfinite += found[t].num_nonfinite;
        into.sum += found[t].sum;
        into.square_sum += found[t].square_sum;
        for (int k = 0; k < SKETCH_SUMS; k++) into.sums[k] += found[t].sums[k];
    }
}

}  // namespace numscope
