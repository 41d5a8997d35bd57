// 128-bit vectors: every x86-64 and every aarch64 has them.
#define VECTOR_BYTES 16
#define ISA "baseline"
#define KERNELS kernels_baseline
#define EXTRA_KERNELS extra_kernels_baseline
#define ROUND_KERNELS round_kernels_baseline
#include "kernel.h"
#include "extra_kernel.h"
#include "quantize_kernel.h"
