#include "decode.h"

#include "pool.h"

namespace numscope {
namespace {

constexpr int64_t PARALLEL_NUMEL = 65536;
constexpr int64_t TASK = 65536;  // elements

template <class T>
void look_up(const uint8_t* codes, int64_t n, const T* table, T* values) {
    for (int64_t i = 0; i < n; ++i) values[i] = table[codes[i]];
}

void look_up_scaled(const uint8_t* codes, int64_t n, const float* table, float scale_inv, float* values) {
    for (int64_t i = 0; i < n; ++i) values[i] = table[codes[i]] * scale_inv;
}

void look_up_each(const uint8_t* codes, int64_t n, const float* table, const float* scale_inv, float* values) {
    for (int64_t i = 0; i < n; ++i) values[i] = table[codes[i]] * scale_inv[i];
}

void run(const DecodeCall& call, int64_t first, int64_t last) {  // rows
    const int64_t columns = call.columns;
    if (!call.scale_inv) {
        const int64_t at = first * columns, n = (last - first) * columns;
        if (call.bytes == 4)
            look_up(call.codes + at, n, static_cast<const uint32_t*>(call.table), static_cast<uint32_t*>(call.values) + at);
        else
            look_up(call.codes + at, n, static_cast<const uint16_t*>(call.table), static_cast<uint16_t*>(call.values) + at);
        return;
    }
    const int64_t width = call.block_columns ? call.block_columns : columns;
    const int64_t per_row = (columns + width - 1) / width;
    const float* table = static_cast<const float*>(call.table);
    for (int64_t row = first; row < last; ++row) {
        const uint8_t* codes = call.codes + row * columns;
        float* values = static_cast<float*>(call.values) + row * columns;
        const float* scale_inv = call.scale_inv + (call.block_rows ? row / call.block_rows : 0) * per_row;
        if (width == 1) {
            look_up_each(codes, columns, table, scale_inv, values);
            continue;
        }
        for (int64_t begin = 0, block = 0; begin < columns; begin += width, ++block) {
            const int64_t n = begin + width < columns ? width : columns - begin;
            look_up_scaled(codes + begin, n, table, scale_inv[block], values + begin);
        }
    }
}

struct Rows {
    const DecodeCall* call;
    int64_t rows;  // of one task
};

}  // namespace

void decode(const DecodeCall& call, int num_threads) {
    const int64_t rows = call.columns < TASK ? TASK / call.columns : 1;
    Rows task{&call, rows};
    run_tasks(
        (call.rows + rows - 1) / rows, call.rows * call.columns < PARALLEL_NUMEL ? 1 : num_threads,
        [](void* t, int64_t i) {
            const Rows& task = *static_cast<Rows*>(t);
            const int64_t last = (i + 1) * task.rows;
            run(*task.call, i * task.rows, last < task.call->rows ? last : task.call->rows);
        },
        &task);
}

}  // namespace numscope
