#if defined(__x86_64__)
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "extras.h"
#include "quantize.h"
#include "summary.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2")
#endif
#define VECTOR_BYTES 64
#define ISA "avx512"
#define KERNELS kernels_avx512
#define EXTRA_KERNELS extra_kernels_avx512
#define ROUND_KERNELS round_kernels_avx512
#define USE_X86
#include "kernel.h"
#include "extra_kernel.h"
#include "quantize_kernel.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
