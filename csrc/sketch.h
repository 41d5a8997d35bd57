// Fingerprints of tensors in one pass: checksum, count of non-finite elements, two moments, and 32 signed sums. Their meaning, and what
// they bound, is in numscope/summary/sketch.py.
#pragma once

#include <cstdint>

namespace numscope {

constexpr int SKETCH_SUMS = 32;   // one for each bit of an index's hash
constexpr int NUM_ROUNDINGS = 2;  // to bfloat16, to float16

struct SketchEntry {  // packed by Python as six 64-bit integers
    int64_t address, numel, dtype;
    int64_t first;   // index of the first element within the whole
    int64_t run;     // elements that also lie together in the whole
    int64_t layout;  // 0: one run; else the address of the number of outer dimensions, their sizes, and their steps within the whole
};

struct Sketch {  // unpacked by Python as 38 numbers of 64 bits
    uint64_t checksum, rounded[NUM_ROUNDINGS];
    double num_nonfinite, sum, square_sum;
    double sums[SKETCH_SUMS];
};

// `rounds`: whether `rounded` gets the checksums of the elements as each 16-bit format has them; else it is 0.
void sketch(const SketchEntry* entries, int64_t num_entries, Sketch* out, bool rounds, int num_threads);

}  // namespace numscope
