// Summarizes tensors into rows.
#pragma once

#include <cstdint>

#include "summary.h"

namespace numscope {

struct Entry {  // packed by Python as four 64-bit integers
    int64_t address, numel, dtype, row_address;
};

// Merges each tensor's summary into its row, in the order given. Rows may repeat.
void observe(const Entry* entries, int64_t num_entries, int groups, int num_threads);

// Whether observe() would use threads, or take long enough that other Python threads should run meanwhile.
int64_t total_numel(const Entry* entries, int64_t num_entries);

}  // namespace numscope
