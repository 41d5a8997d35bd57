// Converts one-byte codes back to numbers by a table of 256 entries. numscope/precision/casting/decoding.py calls it.
#pragma once

#include <cstdint>

namespace numscope {

// A matrix of codes, and where its numbers go.
struct DecodeCall {
    const uint8_t* codes;  // [rows, columns]
    int64_t rows, columns;
    const void* table;       // 256 numbers of `bytes` each
    int64_t bytes;           // 2 or 4; with scales 4, float32
    void* values;            // of the table's type
    const float* scale_inv;  // factors of the numbers, one for each block; null: none
    int64_t block_rows, block_columns;  // 0: all
};

void decode(const DecodeCall& call, int num_threads);

}  // namespace numscope
