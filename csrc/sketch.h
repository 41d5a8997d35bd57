// Fingerprints of tensors in one pass: checksum, count of non-finite elements, two moments, and 32 signed sums. Their meaning, and what
// they bound, is in numscope/summary/sketch.py.
#pragma once

#include <cstdint>

namespace numscope {

constexpr int SKETCH_SUMS = 32;  // one for each bit of an index's hash

struct SketchEntry {  // packed by Python as six 64-bit integers
    int64_t address, numel, dtype;
    int64_t first;   // index of the first element within the whole
    int64_t run;     // elements that also lie together in the whole
    int64_t layout;  // 0: one run; else the address of the number of outer dimensions, their sizes, and their steps within the whole
};

struct Sketch {  // unpacked by Python as 36 numbers of 64 bits
    uint64_t checksum;
    double num_nonfinite, sum, square_sum;
    double sums[SKETCH_SUMS];
};

void sketch(const SketchEntry* entries, int64_t num_entries, Sketch* out, int num_threads);

}  // namespace numscope
