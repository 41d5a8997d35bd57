#include "extras.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "pool.h"
#include "select.h"

namespace numscope {
namespace {

constexpr int64_t PARALLEL_NUMEL = 65536;  // a cast takes about ten times the work of a summary
constexpr int64_t MAX_PARTS = 256;         // each has an exponent histogram of 2 KB
constexpr int64_t PIECE = 8192;            // elements

int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

// The scale that maps amax to the format's maximum, as a normal float32; 1 for zeros.
double scale_of(double amax, double max) {
    using limits = std::numeric_limits<float>;
    if (amax == 0) return 1.0;
    const double scale = max / amax;
    if (scale >= limits::max()) return limits::max();
    return scale < limits::min() ? limits::min() : double(float(scale));
}

struct Walk {
    const char* data;
    int64_t numel, columns, num_threads;
    Dtype dtype;
    const ExtraKernel& kernel;
    const ExtraSpec* specs;
    int64_t num_specs;
    double* cells;

    // Work that takes elements in any order: consecutive parts of the tensor's memory.
    int64_t part_numel() const { return divided_up(divided_up(numel, MAX_PARTS), CHUNK) * CHUNK; }
    int64_t num_parts() const { return divided_up(numel, part_numel()); }
    const char* part(int64_t index, int64_t& n) const {
        const int64_t begin = index * part_numel();
        n = numel - begin < part_numel() ? numel - begin : part_numel();
        return data + begin * element_bytes(dtype);
    }

    template <class Task>
    void each(int64_t num_tasks, Task task) const {
        run_tasks(num_tasks, numel < PARALLEL_NUMEL ? 1 : int(num_threads), [](void* t, int64_t i) { (*static_cast<Task*>(t))(i); }, &task);
    }

    double amax() const {
        double most[MAX_PARTS] = {};
        each(num_parts(), [&](int64_t index) {
            int64_t n;
            const char* from = part(index, n);
            most[index] = kernel.amax(from, n);
        });
        double whole = 0;
        for (double one : most) whole = one > whole ? one : whole;
        return whole;
    }

    // Computes exponents and casts in one pass. Parts are added in order, so sums do not depend on the number of threads.
    bool elements() const {
        int64_t width = 0;
        bool scaled = false;
        for (int64_t s = 0; s < num_specs; s++) {
            if (specs[s].kind == EXPONENTS) width += NUM_EXPONENTS;
            if (specs[s].kind == FORMAT) {
                width += CAST_CELLS;
                scaled |= CAST_FORMATS[specs[s].first].scaled;
            }
        }
        if (!width) return true;
        const int64_t parts = num_parts();
        double* sums = static_cast<double*>(calloc(width * parts, sizeof(double)));
        if (!sums) return false;
        const double largest = scaled ? amax() : 0;
        each(parts, [&](int64_t index) {
            int64_t n;
            const char* from = part(index, n);
            for (int64_t begin = 0; begin < n; begin += PIECE) {  // a piece stays in the first-level cache for all kernels
                const int64_t count = n - begin < PIECE ? n - begin : PIECE;
                const char* piece = from + begin * element_bytes(dtype);
                double* out = sums + index * width;
                for (int64_t s = 0; s < num_specs; s++) {
                    if (specs[s].kind == EXPONENTS) {
                        kernel.exponents(piece, count, out);
                        out += NUM_EXPONENTS;
                    } else if (specs[s].kind == FORMAT) {
                        const CastFormat& format = CAST_FORMATS[specs[s].first];
                        kernel.cast(piece, count, format, format.scaled ? scale_of(largest, format.max) : 1.0, out);
                        out += CAST_CELLS;
                    }
                }
            }
        });
        for (int64_t index = 0; index < parts; index++) {
            const double* in = sums + index * width;
            for (int64_t s = 0; s < num_specs; s++) {
                const int own = specs[s].kind == EXPONENTS ? NUM_EXPONENTS : specs[s].kind == FORMAT ? CAST_CELLS : 0;
                for (int i = 0; i < own; i++) cells[specs[s].offset + i] += *in++;
            }
        }
        free(sums);
        return true;
    }

    // A tile is as high as a block, and wide enough to be worth a thread's time.
    bool blocks(const ExtraSpec& spec) const {
        const int64_t size = spec.first, rows = numel / columns;
        const int64_t height = size < rows ? size : rows;
        const int64_t wide = CHUNK / height / size * size, width = wide < size ? size : wide;
        const int64_t across = divided_up(columns, width), tiles = divided_up(rows, size) * across;
        const int64_t tiles_a_task = divided_up(CHUNK, height * (width < columns ? width : columns)), tasks = divided_up(tiles, tiles_a_task);
        double* widest = static_cast<double*>(calloc(tasks, sizeof(double)));
        if (!widest) return false;
        std::atomic<bool> short_of_memory{false};
        each(tasks, [&](int64_t task) {
            uint64_t* own = static_cast<uint64_t*>(malloc(2 * width * sizeof(uint64_t)));
            if (!own) {
                short_of_memory = true;
                return;
            }
            const int64_t end = (task + 1) * tiles_a_task < tiles ? (task + 1) * tiles_a_task : tiles;
            for (int64_t t = task * tiles_a_task; t < end; t++) {
                const int64_t row = t / across * size, column = t % across * width;
                const Tile tile{data + (row * columns + column) * element_bytes(dtype), rows - row < size ? rows - row : size,
                                columns - column < width ? columns - column : width, columns * element_bytes(dtype)};
                widest[task] = kernel.blocks(tile, size, int(spec.second), own, widest[task]);
            }
            free(own);
        });
        double& cell = cells[spec.offset];
        for (int64_t task = 0; task < tasks; task++) cell = widest[task] > cell ? widest[task] : cell;
        free(widest);
        return !short_of_memory;
    }
};

}  // namespace

bool observe_extras(const void* data, int64_t numel, int64_t columns, Dtype dtype, double* cells, const ExtraSpec* specs, int64_t num_specs,
                    int num_threads) {
    const Walk walk{static_cast<const char*>(data), numel, columns, num_threads, dtype, extra_kernel(dtype), specs, num_specs, cells};
    for (int64_t s = 0; s < num_specs; s++)
        if (specs[s].kind == BLOCKWISE && !walk.blocks(specs[s])) return false;
    return walk.elements();
}

}  // namespace numscope
