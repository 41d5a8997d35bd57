#include "extras.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "pool.h"
#include "select.h"

namespace numscope {
namespace {

constexpr int64_t PARALLEL_NUMEL = 65536;  // an exponent takes more work than a summary
constexpr int64_t MAX_PARTS = 256;         // each has an exponent histogram of 2 KB

int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

struct Walk {
    const char* data;
    int64_t numel, columns, num_threads;
    Dtype dtype;
    const ExtraKernel& kernel;
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

    // Counts exponents. Parts are added in order, so sums do not depend on the number of threads.
    bool exponents(const ExtraSpec& spec) const {
        const int64_t parts = num_parts();
        double* sums = static_cast<double*>(calloc(NUM_EXPONENTS * parts, sizeof(double)));
        if (!sums) return false;
        each(parts, [&](int64_t index) {
            int64_t n;
            const char* from = part(index, n);
            kernel.exponents(from, n, sums + index * NUM_EXPONENTS);
        });
        for (int64_t i = 0; i < NUM_EXPONENTS * parts; i++) cells[spec.offset + i % NUM_EXPONENTS] += sums[i];
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
    const Walk walk{static_cast<const char*>(data), numel, columns, num_threads, dtype, extra_kernel(dtype), cells};
    for (int64_t s = 0; s < num_specs; s++)
        if (!(specs[s].kind == BLOCKWISE ? walk.blocks(specs[s]) : walk.exponents(specs[s]))) return false;
    return true;
}

}  // namespace numscope
