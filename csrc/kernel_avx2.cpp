#if defined(__x86_64__)
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "extras.h"
#include "quantize.h"
#include "summary.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,bmi,bmi2")
#endif
#define VECTOR_BYTES 32
#define ISA "avx2"
#define KERNELS kernels_avx2
#define EXTRA_KERNELS extra_kernels_avx2
#define ROUND_KERNELS round_kernels_avx2
#define USE_X86
#include "kernel.h"
#include "extra_kernel.h"
#include "quantize_kernel.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
