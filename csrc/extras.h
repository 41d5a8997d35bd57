// A tensor's extra columns: numscope/summary/extras.py defines the layout, these functions fill it.
#pragma once

#include <cstdint>

#include "summary.h"

namespace numscope {

enum ExtraKind : int { EXPONENTS, BLOCKWISE, NUM_EXTRA_KINDS };
enum Orientation : int { ALONG_ROWS = 1, ALONG_COLUMNS = 2, SQUARES = 4 };
constexpr int NUM_EXPONENTS = 256;
constexpr int64_t MAX_BLOCK_SIZE = 1024;

struct ExtraSpec {  // packed by Python as four 64-bit integers
    int64_t kind;
    int64_t offset;  // first cell
    int64_t first;   // the blocks' size
    int64_t second;  // the sum of the blocks' orientations
};

// A rectangle of a tensor's two-dimensional view, no higher than a block.
struct Tile {
    const void* data;
    int64_t rows, columns, row_bytes;
};

struct ExtraKernel {
    void (*exponents)(const void* data, int64_t n, double* counts);  // adds
    // The widest range of a tile's blocks, or `widest` if that is wider; `scratch` has room for 2 * columns 64-bit numbers.
    double (*blocks)(const Tile& tile, int64_t size, int orientations, uint64_t* scratch, double widest);
};

// One table for each instruction set, from extra_kernel.h, in the order of the first four dtypes.
struct ExtraKernels {
    ExtraKernel of[4];
};
extern const ExtraKernels extra_kernels_baseline;
#if defined(__x86_64__)
extern const ExtraKernels extra_kernels_avx2;
extern const ExtraKernels extra_kernels_avx512;
#endif

// Merges a tensor's extra columns into cells. Returns false if memory could not be allocated.
bool observe_extras(const void* data, int64_t numel, int64_t columns, Dtype dtype, double* cells, const ExtraSpec* specs, int64_t num_specs,
                    int num_threads);

}  // namespace numscope
