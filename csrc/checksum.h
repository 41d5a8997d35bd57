// 64-bit checksums of tensors' bits. What they are, and what they can't see, is said in numscope/summary/checksum.py.
#pragma once

#include <cstdint>

namespace numscope {

struct SumEntry {  // packed by Python as five 64-bit integers
    int64_t address, numel, item_bytes;
    int64_t first;   // position of the first element's first byte within the whole
    int64_t layout;  // 0: contiguous; else the address of the number of dimensions, their sizes, and their strides in elements
};

void checksum(const SumEntry* entries, int64_t num_entries, uint64_t* sums, int num_threads);

// The sum of contiguous memory that begins at a position of the whole, in bytes.
uint64_t checksum_bytes(const char* data, int64_t num_bytes, int64_t position);

int64_t total_bytes(const SumEntry* entries, int64_t num_entries);

}  // namespace numscope
