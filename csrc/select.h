// Selects the kernels' instruction set: the widest that this processor supports, unless a test chose another.
#pragma once

#include "extras.h"
#include "quantize.h"
#include "summary.h"

namespace numscope {

const char* isa();
bool choose_isa(const char* name);  // false if unknown or not supported here

void summarize_chunk(Dtype dtype, const void* data, int64_t n, int groups, Row& out);

const ExtraKernel& extra_kernel(Dtype dtype);  // of the first four
const RoundKernel& round_kernel(Dtype dtype);  // of F32, BF16 and F16

}  // namespace numscope
