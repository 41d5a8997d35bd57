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
constexpr int64_t PIECE = 2048;       // elements at a time: what is read twice is in the cache then
constexpr int64_t TILE = 32768;       // elements of a tile of several rows, for the second-level cache
constexpr int64_t MAX_TILE_ROWS = 256;
constexpr uint32_t INF = 0x7f800000u, NAN_BITS = 0x7fc00000u;
constexpr float MIN_NORMAL = std::numeric_limits<float>::min(), MAX = std::numeric_limits<float>::max();

int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

float as_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
uint32_t as_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

// ---- scales: mirrors scale_of and block_scales of numscope/precision/scaling.py

float scale_of(float amax, float max, float margin, bool power_of_two) {
    float scale = max / amax / margin;
    scale = scale < MIN_NORMAL ? MIN_NORMAL : scale > MAX ? MAX : scale;
    if (power_of_two) scale = as_float(as_bits(scale) & INF);
    return amax > 0 && amax <= MAX ? scale : 1.0f;
}

float power_of_two(int exponent) { return as_float(exponent > -127 ? uint32_t(exponent + 127) << 23 : 0x00400000u); }

// To e4m3, of numbers from 0 to its maximum.
float to_e4m3(float x) {
    uint32_t exponent = as_bits(x) & INF;
    const uint32_t lowest = uint32_t(127 - 6) << 23;
    exponent = exponent > lowest ? exponent : lowest;
    const float shift = as_float(exponent + (20u << 23) + (1u << 22));
    volatile float shifted = x + shift;
    return shifted - shift;
}

struct Scales {
    const QuantizeSpec& spec;
    const float max, margin;
    const int max_exponent;
    float outer = 1.0f, outer_inv = 1.0f;  // of the tensor, over e4m3 scales

    explicit Scales(const QuantizeSpec& s)
        : spec(s), max(float(s.max)), margin(std::ldexp(1.0f, int(s.margin))), max_exponent(std::ilogb(s.max)) {}

    void set_outer(uint32_t amax) {
        const double whole = spec.max * 448.0;
        outer = scale_of(as_float(amax), whole > MAX ? MAX : float(whole), margin, false);
        outer_inv = 1.0f / outer;
    }

    void operator()(const uint32_t* amax, int64_t n, float* scale, float* inv) const {
        if (spec.scale_kind == SCALE_E8M0) {
            for (int64_t i = 0; i < n; i++) {
                int exponent = int(amax[i] >> 23) - 127 - max_exponent + int(spec.margin);
                exponent = amax[i] == INF ? 127 : exponent;
                exponent = exponent < -127 ? -127 : exponent > 127 ? 127 : exponent;
                scale[i] = power_of_two(-exponent);
                inv[i] = power_of_two(exponent);
            }
        } else if (spec.scale_kind == SCALE_E4M3) {
            for (int64_t i = 0; i < n; i++) {
                float wanted = as_float(amax[i]) / max * outer;
                wanted = wanted > 448.0f ? 448.0f : wanted;
                const float inner = to_e4m3(wanted), whole = outer / inner;
                scale[i] = inner == 0 ? 0.0f : whole > MAX ? MAX : whole;
                inv[i] = inner * outer_inv;
            }
        } else {
            for (int64_t i = 0; i < n; i++) {
                scale[i] = scale_of(as_float(amax[i]), max, margin, spec.power_of_two != 0);
                inv[i] = 1.0f / scale[i];
            }
        }
        for (int64_t i = 0; i < n; i++)
            if (amax[i] > INF) scale[i] = inv[i] = as_float(NAN_BITS);
    }
};

// ---- the walk

struct Part {  // of one task; parts are merged in order, so that sums do not depend on the number of threads
    RoundCounts counts;
    float scale, scale_inv;  // the largest, nan aside

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
        : call_(call), spec_(spec), kernel_(round_kernel(call.dtype)), scales_(spec), rows_(call.rows), columns_(call.columns),
          height_(spec.block_rows), width_(spec.block_columns), bytes_(element_bytes(call.dtype)), num_threads_(num_threads) {
        if (!height_ || height_ > rows_) height_ = rows_;
        if (!width_ || width_ > columns_) width_ = columns_;
        if (height_ == 1 && columns_ % width_ == 0) {  // rows follow each other in memory as blocks do
            columns_ *= rows_;
            rows_ = 1;
        }
        across_ = divided_up(columns_, width_);
    }

    bool can() const { return is_one() || height_ == 1 || (width_ <= PIECE && (height_ <= MAX_TILE_ROWS || width_ == 1)); }

    bool run() {
        if (call_.cells) call_.cells[0] += double(rows_ * columns_);
        if (spec_.scale_kind == SCALE_E4M3) scales_.set_outer(amax_of_all(true));
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
    Scales scales_;
    int64_t rows_, columns_, height_, width_, across_;  // across: blocks in a row of blocks
    const int64_t bytes_;
    const int num_threads_;

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
            if (!(*call_.amax >= amax)) *call_.amax = *call_.amax != *call_.amax ? *call_.amax : amax;  // nan stays
        }
        return true;
    }

    // Elements from `begin` on, with one scale or one each.
    void round(int64_t begin, int64_t n, const float* scale, const float* inv, bool is_each, Part& part) const {
        alignas(64) float rounded[PIECE];
        for (int64_t i = 0; i < n; i += PIECE) {
            const int64_t at = begin + i;
            RoundPiece piece{x(at), smaller(PIECE, n - i), scale, inv, nullptr, nullptr};
            if (is_each) {
                piece.scale += i;
                piece.scale_inv += i;
            }
            if (call_.values) piece.values = static_cast<char*>(call_.values) + at * bytes_;
            if (call_.codes) piece.rounded = spec_.code_bytes == 4 ? static_cast<float*>(call_.codes) + at : rounded;
            (is_each ? kernel_.round_each : kernel_.round)(piece, spec_, call_.cells != nullptr, part.counts);
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
            scales_(&amax, 1, &scale, &inv);
        }
        *call_.scale_inv = inv;
        const int64_t numel = rows_ * columns_;
        return each_part(divided_up(numel, TASK), [&](int64_t task, Part& part) {
            const int64_t begin = task * TASK;
            part.see(&scale, &inv, 1);
            round(begin, smaller(TASK, numel - begin), &scale, &inv, false, part);
        });
    }

    // Blocks of one row that are no small ones: rows as a whole, mostly.
    bool wide() {
        const int64_t blocks = rows_ * across_, a_task = divided_up(TASK, width_);
        return each_part(divided_up(blocks, a_task), [&](int64_t task, Part& part) {
            for (int64_t b = task * a_task; b < blocks && b < (task + 1) * a_task; b++) {
                const int64_t column = b % across_ * width_, begin = b / across_ * columns_ + column, n = smaller(width_, columns_ - column);
                uint32_t amax = kernel_.amax(x(begin), n, false);
                if (amax > INF && !spec_.nan_takes_block) amax = kernel_.amax(x(begin), n, true);
                float scale, inv;
                scales_(&amax, 1, &scale, &inv);
                call_.scale_inv[b] = inv;
                part.see(&scale, &inv, 1);
                round(begin, n, &scale, &inv, false, part);
            }
        });
    }

    // Blocks of some rows and columns. A tile is as high as a block and stays in the cache between its amaxes and its rounding.
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
        scales_(amax, blocks, scale, inv);
        part.see(scale, inv, blocks);
        if (width_ > 1) {
            for (int64_t b = 0; b < blocks; b++) {
                const int64_t end = smaller((b + 1) * width_, columns);
                for (int64_t c = b * width_; c < end; c++) {
                    each_scale[c] = scale[b];
                    each_inv[c] = inv[b];
                }
            }
        }
        const bool own = width_ == 1;
        for (int64_t r = row; r < row + rows; r++)
            round(r * columns_ + column, columns, own ? scale : each_scale, own ? inv : each_inv, true, part);
    }

    // Blocks of one column and many rows: columns as a whole, mostly. Two passes over memory.
    bool tall() {
        const int64_t blocks = divided_up(rows_, height_);
        const int64_t strips = divided_up(height_, MAX_TILE_ROWS), wide = smaller(columns_, PIECE), chunks = divided_up(columns_, wide);
        uint32_t* amax = static_cast<uint32_t*>(calloc(strips * columns_, sizeof(uint32_t)));
        float* scale = static_cast<float*>(malloc(columns_ * sizeof(float)));
        bool done = amax && scale;
        // One task goes through all blocks' parts at the same place; blocks above each other come one after the other.
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
            scales_(amax, columns_, scale, inv);
            done = each_part(strips * chunks, [&](int64_t task, Part& part) {
                const int64_t strip = task / chunks, column = task % chunks * wide, begin = first + strip * MAX_TILE_ROWS;
                const int64_t n = smaller(wide, columns_ - column);
                part.see(scale + column, inv + column, n);
                for (int64_t r = begin; r < last && r < begin + MAX_TILE_ROWS; r++)
                    round(r * columns_ + column, n, scale + column, inv + column, true, part);
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
