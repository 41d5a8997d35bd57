#include "quantize.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "pool.h"
#include "select.h"

namespace numscope {
namespace {

constexpr int64_t PARALLEL_NUMEL = 65536;
constexpr int64_t TASK = 65536;       // elements
constexpr int64_t PIECE = 2048;       // elements at a time, so that data read twice is still in the cache
constexpr int64_t TILE = 32768;       // elements of a tile of several rows, for the second-level cache
constexpr int64_t MAX_TILE_ROWS = 256;
constexpr uint32_t INF = 0x7f800000u, NAN_BITS = 0x7fc00000u;
constexpr float MAX = std::numeric_limits<float>::max();

int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

ScaleRule rule_of(const QuantizeSpec& spec) {
    return {spec.scale_kind, spec.power_of_two != 0, std::ilogb(spec.max) - int(spec.margin), float(spec.max), std::ldexp(1.0f, int(spec.margin)), 1.0f};
}

float as_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
// ---- the walk

struct Part {  // the result of one task; parts are merged in order, so sums do not depend on the number of threads
    RoundCounts counts;
    float scale, scale_inv;  // the largest, ignoring NaN

    void see(const float* scales, const float* inverses, int64_t n) {
        for (int64_t i = 0; i < n; i++) {
            scale = scales[i] > scale ? scales[i] : scale;
            scale_inv = inverses[i] > scale_inv ? inverses[i] : scale_inv;
        }
    }
};

class Walk {
public:
    Walk(const QuantizeCall& call, const QuantizeSpec& spec, int num_threads)
        : call_(call), spec_(spec), kernel_(round_kernel(call.dtype)), rule_(rule_of(spec)), rows_(call.rows), columns_(call.columns),
          height_(spec.block_rows), width_(spec.block_columns), bytes_(element_bytes(call.dtype)), num_threads_(num_threads) {
        if (!height_ || height_ > rows_) height_ = rows_;
        if (!width_ || width_ > columns_) width_ = columns_;
        if (height_ == 1 && columns_ % width_ == 0) {  // blocks of all rows are consecutive in memory
            columns_ *= rows_;
            rows_ = 1;
        }
        across_ = divided_up(columns_, width_);
    }

    bool can() const { return is_one() || height_ == 1 || (width_ <= PIECE && (height_ <= MAX_TILE_ROWS || width_ == 1)); }

    bool run() {
        if (call_.cells) call_.cells[0] += double(rows_ * columns_);
        if (spec_.scale_kind == SCALE_E4M3) set_outer(amax_of_all(true));
        if (is_one()) return one();
        if (height_ == 1 && width_ > PIECE) return wide();
        if (height_ > MAX_TILE_ROWS) return tall();
        return tiles();
    }

    uint32_t amax_of_all(bool aside) const {
        constexpr int64_t MAX_PARTS = 256;
        uint32_t amax[MAX_PARTS] = {};
        const int64_t numel = rows_ * columns_, part = divided_up(divided_up(numel, MAX_PARTS), TASK) * TASK;
        each(divided_up(numel, part), [&](int64_t task) {
            const int64_t begin = task * part;
            amax[task] = kernel_.amax(x(begin), smaller(part, numel - begin), aside);
        });
        uint32_t most = 0;
        for (uint32_t one : amax) most = one > most ? one : most;
        return most;
    }

private:
    const QuantizeCall& call_;
    const QuantizeSpec& spec_;
    const RoundKernel& kernel_;
    ScaleRule rule_;
    int64_t rows_, columns_, height_, width_, across_;  // across: number of blocks in a row of blocks
    const int64_t bytes_;
    const int num_threads_;

    void set_outer(uint32_t amax) {
        const double most = spec_.max * 448.0;
        const ScaleRule of_all{SCALE_FLOAT32, false, 0, most > MAX ? MAX : float(most), rule_.margin, 1.0f};
        float inv;
        kernel_.scales(&amax, 1, of_all, &rule_.outer, &inv);
    }

    bool is_one() const { return height_ == rows_ && width_ == columns_; }
    const char* x(int64_t element) const { return static_cast<const char*>(call_.x) + element * bytes_; }

    template <class Task>
    void each(int64_t num_tasks, Task task) const {
        run_tasks(num_tasks, rows_ * columns_ < PARALLEL_NUMEL ? 1 : num_threads_, [](void* t, int64_t i) { (*static_cast<Task*>(t))(i); }, &task);
    }

    template <class Task>  // task(index, Part&)
    bool each_part(int64_t num_tasks, Task task) const {
        Part few[16] = {};
        Part* parts = num_tasks <= 16 ? few : static_cast<Part*>(calloc(num_tasks, sizeof(Part)));
        if (!parts) return false;
        each(num_tasks, [&](int64_t index) { task(index, parts[index]); });
        Part all{};
        for (int64_t i = 0; i < num_tasks; i++) {
            const RoundCounts& counts = parts[i].counts;
            all.counts.num_underflow += counts.num_underflow;
            all.counts.num_overflow += counts.num_overflow;
            all.counts.square_error += counts.square_error;
            if (counts.amax > all.counts.amax) all.counts.amax = counts.amax;
            all.see(&parts[i].scale, &parts[i].scale_inv, 1);
        }
        if (parts != few) free(parts);
        if (double* cells = call_.cells) {
            cells[1] += double(all.counts.num_underflow);
            cells[2] += double(all.counts.num_overflow);
            cells[3] += all.counts.square_error;
            cells[4] = all.scale > cells[4] ? all.scale : cells[4];
            cells[5] = all.scale_inv > cells[5] ? all.scale_inv : cells[5];
        }
        if (call_.amax) {
            const float amax = as_float(all.counts.amax);
            if (!(*call_.amax >= amax)) *call_.amax = *call_.amax != *call_.amax ? *call_.amax : amax;  // NaN is kept
        }
        return true;
    }

    // Processes elements from `begin` on, with one scale or, if width > 0, with one scale per `width` elements.
    void round(int64_t begin, int64_t n, const float* scale, const float* inv, int64_t width, Part& part) const {
        alignas(64) float rounded[PIECE];
        for (int64_t i = 0; i < n; i += PIECE) {
            const int64_t at = begin + i;
            const int64_t past = width ? i / width : 0;
            RoundPiece piece{x(at), smaller(PIECE, n - i), width, scale + past, inv + past, nullptr, nullptr};
            if (call_.values) piece.values = static_cast<char*>(call_.values) + at * bytes_;
            if (call_.codes) piece.rounded = spec_.code_bytes == 4 ? static_cast<float*>(call_.codes) + at : rounded;
            (width ? kernel_.round_each : kernel_.round)(piece, spec_, call_.cells != nullptr, part.counts);
            if (piece.rounded == rounded) kernel_.encode(rounded, piece.n, spec_, static_cast<char*>(call_.codes) + at * spec_.code_bytes);
        }
    }

    bool one() {
        float scale, inv;
        if (call_.scale) {
            scale = *call_.scale;
            if (spec_.nan_takes_block && amax_of_all(false) > INF) scale = as_float(NAN_BITS);
            inv = 1.0f / scale;
        } else {
            uint32_t amax = amax_of_all(false);
            if (amax > INF && !spec_.nan_takes_block) amax = amax_of_all(true);
            kernel_.scales(&amax, 1, rule_, &scale, &inv);
        }
        *call_.scale_inv = inv;
        const int64_t numel = rows_ * columns_;
        return each_part(divided_up(numel, TASK), [&](int64_t task, Part& part) {
            const int64_t begin = task * TASK;
            part.see(&scale, &inv, 1);
            round(begin, smaller(TASK, numel - begin), &scale, &inv, 0, part);
        });
    }

    // Large blocks within one row, mostly whole rows.
    bool wide() {
        const int64_t blocks = rows_ * across_, a_task = divided_up(TASK, width_);
        return each_part(divided_up(blocks, a_task), [&](int64_t task, Part& part) {
            for (int64_t b = task * a_task; b < blocks && b < (task + 1) * a_task; b++) {
                const int64_t column = b % across_ * width_, begin = b / across_ * columns_ + column, n = smaller(width_, columns_ - column);
                uint32_t amax = kernel_.amax(x(begin), n, false);
                if (amax > INF && !spec_.nan_takes_block) amax = kernel_.amax(x(begin), n, true);
                float scale, inv;
                kernel_.scales(&amax, 1, rule_, &scale, &inv);
                call_.scale_inv[b] = inv;
                part.see(&scale, &inv, 1);
                round(begin, n, &scale, &inv, 0, part);
            }
        });
    }

    // Blocks of several rows and columns. A tile is as high as a block and stays in the cache between its amaxes and its rounding.
    bool tiles() {
        int64_t wide = smaller(PIECE, TILE / height_) / width_ * width_;
        wide = smaller(wide < width_ ? width_ : wide, columns_);
        const int64_t a_row = divided_up(columns_, wide), tiles = divided_up(rows_, height_) * a_row, a_task = divided_up(TASK, height_ * wide);
        return each_part(divided_up(tiles, a_task), [&](int64_t task, Part& part) {
            for (int64_t t = task * a_task; t < tiles && t < (task + 1) * a_task; t++) {
                const int64_t row = t / a_row * height_, column = t % a_row * wide;
                tile(row, smaller(height_, rows_ - row), column, smaller(wide, columns_ - column), part);
            }
        });
    }

    void amax_of_tile(int64_t row, int64_t rows, int64_t column, int64_t columns, bool aside, uint32_t* amax) const {
        if (height_ == 1) return kernel_.amax_blocks(x(row * columns_ + column), columns, width_, aside, amax);
        memset(amax, 0, columns * sizeof(uint32_t));
        for (int64_t r = row; r < row + rows; r++) kernel_.fold(x(r * columns_ + column), columns, aside, amax);
        if (width_ == 1) return;
        for (int64_t begin = 0; begin < columns; begin += width_) {
            uint32_t most = 0;
            for (int64_t c = begin; c < columns && c < begin + width_; c++) most = amax[c] > most ? amax[c] : most;
            amax[begin / width_] = most;
        }
    }

    void tile(int64_t row, int64_t rows, int64_t column, int64_t columns, Part& part) const {
        uint32_t amax[PIECE];
        float scale[PIECE], each_scale[PIECE], each_inv[PIECE];
        const int64_t blocks = divided_up(columns, width_);
        amax_of_tile(row, rows, column, columns, false, amax);
        if (!spec_.nan_takes_block) {
            uint32_t most = 0;
            for (int64_t b = 0; b < blocks; b++) most = amax[b] > most ? amax[b] : most;
            if (most > INF) amax_of_tile(row, rows, column, columns, true, amax);
        }
        float* inv = call_.scale_inv + row / height_ * across_ + column / width_;
        kernel_.scales(amax, blocks, rule_, scale, inv);
        part.see(scale, inv, blocks);
        const bool spread = width_ % LONGEST_VECTOR != 0 && width_ > 1;
        for (int64_t c = 0; spread && c < columns; c++) {
            each_scale[c] = scale[c / width_];
            each_inv[c] = inv[c / width_];
        }
        for (int64_t r = row; r < row + rows; r++)
            round(r * columns_ + column, columns, spread ? each_scale : scale, spread ? each_inv : inv, spread ? 1 : width_, part);
    }

    // Blocks of one column and many rows, mostly whole columns. This takes two passes over memory.
    bool tall() {
        const int64_t blocks = divided_up(rows_, height_);
        const int64_t strips = divided_up(height_, MAX_TILE_ROWS), wide = smaller(columns_, PIECE), chunks = divided_up(columns_, wide);
        uint32_t* amax = static_cast<uint32_t*>(calloc(strips * columns_, sizeof(uint32_t)));
        float* scale = static_cast<float*>(malloc(columns_ * sizeof(float)));
        bool done = amax && scale;
        // Blocks are processed from top to bottom; the tasks of each block are tiles of it.
        for (int64_t block = 0; done && block < blocks; block++) {
            const int64_t first = block * height_, last = smaller(first + height_, rows_);
            const auto fold = [&](bool aside) {
                memset(amax, 0, strips * columns_ * sizeof(uint32_t));
                each(strips * chunks, [&](int64_t task) {
                    const int64_t strip = task / chunks, column = task % chunks * wide, begin = first + strip * MAX_TILE_ROWS;
                    for (int64_t r = begin; r < last && r < begin + MAX_TILE_ROWS; r++)
                        kernel_.fold(x(r * columns_ + column), smaller(wide, columns_ - column), aside, amax + strip * columns_ + column);
                });
                uint32_t most = 0;
                for (int64_t strip = 0; strip < strips; strip++)
                    for (int64_t c = 0; c < columns_; c++) {
                        const uint32_t one = amax[strip * columns_ + c];
                        amax[c] = one > amax[c] ? one : amax[c];
                        most = one > most ? one : most;
                    }
                return most;
            };
            if (fold(false) > INF && !spec_.nan_takes_block) fold(true);
            float* inv = call_.scale_inv + block * columns_;
            kernel_.scales(amax, columns_, rule_, scale, inv);
            done = each_part(strips * chunks, [&](int64_t task, Part& part) {
                const int64_t strip = task / chunks, column = task % chunks * wide, begin = first + strip * MAX_TILE_ROWS;
                const int64_t n = smaller(wide, columns_ - column);
                part.see(scale + column, inv + column, n);
                for (int64_t r = begin; r < last && r < begin + MAX_TILE_ROWS; r++)
                    round(r * columns_ + column, n, scale + column, inv + column, 1, part);
            });
        }
        free(amax);
        free(scale);
        return done;
    }
};

}  // namespace

bool quantizes(const QuantizeCall& call, const QuantizeSpec& spec) { return Walk(call, spec, 1).can(); }

bool quantize(const QuantizeCall& call, const QuantizeSpec& spec, int num_threads) { return Walk(call, spec, num_threads).run(); }

float quantize_amax(const void* x, int64_t numel, Dtype dtype, int num_threads) {
    const QuantizeSpec spec{};
    const QuantizeCall call{x, 1, numel, dtype, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
    return as_float(Walk(call, spec, num_threads).amax_of_all(true));
}

}  // namespace numscope
