#include "select.h"

#include <cstring>
#include <initializer_list>
#include <limits>

namespace numscope {
namespace {

const Kernels* supported(const char* isa) {
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    if (avx512 && !strcmp(isa, "avx512")) return &kernels_avx512;
    if (avx2 && !strcmp(isa, "avx2")) return &kernels_avx2;
#endif
    return strcmp(isa, "baseline") ? nullptr : &kernels_baseline;
}

const Kernels* best() {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    for (const char* isa : {"avx512", "avx2"})
        if (const Kernels* kernels = supported(isa)) return kernels;
    return &kernels_baseline;
}

const Kernels* chosen = best();

void summarize_all(Dtype dtype, const void* data, int64_t n, int groups, Row& out) {
    switch (dtype) {
        case F32: return chosen->f32(data, n, groups, out);
        case F64: return chosen->f64(data, n, groups, out);
        case BF16: return chosen->bf16(data, n, groups, out);
        case F16: return chosen->f16(data, n, groups, out);
        case I64: case I32: case I16: case I8: case U8: case BOOL: return chunk_integers(dtype, data, n, groups, out);
        default: return chunk_fp8(dtype, static_cast<const uint8_t*>(data), n, groups, out);
    }
}

}  // namespace

const char* isa() { return chosen->isa; }

bool choose_isa(const char* name) {
    const Kernels* kernels = supported(name);
    if (kernels) chosen = kernels;
    return kernels != nullptr;
}

const ExtraKernel& extra_kernel(Dtype dtype) {
#if defined(__x86_64__)
    if (chosen == &kernels_avx512) return extra_kernels_avx512.of[dtype];
    if (chosen == &kernels_avx2) return extra_kernels_avx2.of[dtype];
#endif
    return extra_kernels_baseline.of[dtype];
}

const RoundKernel& round_kernel(Dtype dtype) {
    const int index = dtype == F32 ? 0 : dtype == BF16 ? 1 : 2;
#if defined(__x86_64__)
    if (chosen == &kernels_avx512) return round_kernels_avx512.of[index];
    if (chosen == &kernels_avx2) return round_kernels_avx2.of[index];
#endif
    return round_kernels_baseline.of[index];
}

void summarize_chunk(Dtype dtype, const void* data, int64_t n, int groups, Row& out) {
    summarize_all(dtype, data, n, groups, out);
    const bool without = (groups & MOMENTS) && !(groups & HIGHER) && out.numel > out.num_nan + out.num_pos_inf + out.num_neg_inf;
    if (without) out.cube_sum = out.fourth_sum = std::numeric_limits<double>::quiet_NaN();
}

}  // namespace numscope
