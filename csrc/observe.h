// Tensors in, rows out.
#pragma once

#include <cstdint>

#include "summary.h"

namespace numscope {

struct Entry {  // as Python packs it: four 64-bit integers
    int64_t address, numel, dtype, row_address;
};

// Merges each tensor's summary into its row, in the order given. Rows may repeat.
void observe(const Entry* entries, int64_t num_entries, int groups, int num_threads);

// Whether observe() would use threads, or take long enough for other Python threads to want their turn.
int64_t total_numel(const Entry* entries, int64_t num_entries);

}  // namespace numscope
