#include "checksum.h"

#include <atomic>
#include <cstring>
#include <vector>

#include "pool.h"
#include "select.h"

namespace numscope {
namespace {

constexpr int64_t BLOCK_WORDS = 1024;     // their keys are 8 KiB, and stay in the first cache
constexpr int64_t TASK_BYTES = 1 << 18;   // a multiple of a block's bytes
constexpr int64_t PARALLEL_BYTES = 1 << 20;  // below, waking a sleeping thread costs more than it saves

// SplitMix64's output function (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
uint64_t mixed(uint64_t x) {
    x *= 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Odd keys: no single word's change can vanish.
struct Keys {
    uint64_t of[BLOCK_WORDS];
    Keys() {
        for (int64_t i = 0; i < BLOCK_WORDS; i++) of[i] = mixed(uint64_t(i + 1)) | 1;
    }
};
const Keys keys;

uint64_t key_of_block(int64_t block) { return mixed(~uint64_t(block)) | 1; }

// A word plus its upper half: differences in upper bits alone (signs) reach lower bits too, so that few of the product's bits are lost.
inline uint64_t spread(uint32_t word) { return uint64_t(word) + (word >> 16); }

inline __attribute__((always_inline)) uint64_t dot(const char* data, const uint64_t* key, int64_t num_words) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < num_words; i++) {
        uint32_t word;
        memcpy(&word, data + 4 * i, 4);  // the address may be odd
        sum += spread(word) * key[i];
    }
    return sum;
}

using Dot = uint64_t (*)(const char* data, const uint64_t* key, int64_t num_words);

uint64_t dot_baseline(const char* data, const uint64_t* key, int64_t num_words) { return dot(data, key, num_words); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t dot_avx2(const char* data, const uint64_t* key, int64_t num_words) { return dot(data, key, num_words); }

#if defined(__clang__)
#define WIDE __attribute__((target("avx512f,avx512dq,avx512vl"), min_vector_width(512)))
#else
#define WIDE __attribute__((target("avx512f,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
WIDE uint64_t dot_avx512(const char* data, const uint64_t* key, int64_t num_words) { return dot(data, key, num_words); }
#endif

Dot chosen_dot() {
#if defined(__x86_64__)
    if (!strcmp(isa(), "avx512")) return dot_avx512;
    if (!strcmp(isa(), "avx2")) return dot_avx2;
#endif
    return dot_baseline;
}

uint64_t of_word(uint32_t word, int64_t index) { return spread(word) * keys.of[index % BLOCK_WORDS] * key_of_block(index / BLOCK_WORDS); }

// The sum of bytes that lie at a position of the whole; words that they fill in part count as if the rest of them were zero.
uint64_t of_bytes(const char* data, int64_t num_bytes, int64_t position, Dot dot) {
    uint64_t sum = 0;
    const int64_t odd = position % 4;
    if (odd && num_bytes) {
        const int64_t taken = num_bytes < 4 - odd ? num_bytes : 4 - odd;
        uint32_t word = 0;
        memcpy(reinterpret_cast<char*>(&word) + odd, data, taken);
        sum += of_word(word, position / 4);
        data += taken;
        num_bytes -= taken;
        position += taken;
    }
    int64_t index = position / 4;
    for (int64_t left = num_bytes / 4; left > 0;) {
        const int64_t within = index % BLOCK_WORDS, num_words = left < BLOCK_WORDS - within ? left : BLOCK_WORDS - within;
        // A block ahead: processors' own prefetching ends with each page. Twice as fast; past the end of memory it does nothing.
        for (int64_t ahead = 0; ahead < 4 * num_words; ahead += 64) __builtin_prefetch(data + 4 * BLOCK_WORDS + ahead);
        sum += dot(data, keys.of + within, num_words) * key_of_block(index / BLOCK_WORDS);
        data += 4 * num_words;
        index += num_words;
        left -= num_words;
    }
    if (num_bytes % 4) {
        uint32_t word = 0;
        memcpy(&word, data, num_bytes % 4);
        sum += of_word(word, index);
    }
    return sum;
}

// Copies elements in the order of their indices from memory with any strides.
class Walk {
public:
    Walk(const SumEntry& entry, int64_t begin)
        : data_(reinterpret_cast<const char*>(entry.address)), item_(entry.item_bytes), dims_(*reinterpret_cast<const int64_t*>(entry.layout)),
          sizes_(reinterpret_cast<const int64_t*>(entry.layout) + 1), strides_(sizes_ + dims_), at_(dims_) {
        for (int64_t d = dims_ - 1; d >= 0; d--) {
            at_[d] = begin % sizes_[d];
            begin /= sizes_[d];
            data_ += at_[d] * strides_[d] * item_;
        }
    }

    void copy(char* to, int64_t num_items) {
        const int64_t last = dims_ - 1, step = strides_[last] * item_;
        while (num_items > 0) {
            const int64_t left = sizes_[last] - at_[last], run = num_items < left ? num_items : left;
            if (step == item_) memcpy(to, data_, run * item_);
            else take(to, step, run);
            to += run * item_;
            num_items -= run;
            data_ += run * step;
            at_[last] += run;
            for (int64_t d = last; d > 0 && at_[d] == sizes_[d]; d--) {
                data_ += (strides_[d - 1] - sizes_[d] * strides_[d]) * item_;
                at_[d] = 0;
                at_[d - 1]++;
            }
        }
    }

private:
    void take(char* to, int64_t step, int64_t run) const {
        switch (item_) {
            case 1: return take_items<1>(to, step, run);
            case 2: return take_items<2>(to, step, run);
            case 4: return take_items<4>(to, step, run);
            default: return take_items<8>(to, step, run);
        }
    }

    template <int ITEM>
    void take_items(char* to, int64_t step, int64_t run) const {
        for (int64_t i = 0; i < run; i++) memcpy(to + i * ITEM, data_ + i * step, ITEM);
    }

    const char* data_;
    const int64_t item_, dims_;
    const int64_t *sizes_, *strides_;
    std::vector<int64_t> at_;
};

int64_t num_tasks(const SumEntry& entry) { return (entry.numel * entry.item_bytes + TASK_BYTES - 1) / TASK_BYTES; }

uint64_t of_task(const SumEntry& entry, int64_t task, Dot dot) {
    const int64_t begin = task * TASK_BYTES, left = entry.numel * entry.item_bytes - begin, num_bytes = left < TASK_BYTES ? left : TASK_BYTES;
    if (!entry.layout) return of_bytes(reinterpret_cast<const char*>(entry.address) + begin, num_bytes, entry.first + begin, dot);
    Walk walk(entry, begin / entry.item_bytes);
    char block[4 * BLOCK_WORDS];
    uint64_t sum = 0;
    for (int64_t done = 0; done < num_bytes; done += sizeof block) {
        const int64_t rest = num_bytes - done, now = rest < int64_t(sizeof block) ? rest : int64_t(sizeof block);
        walk.copy(block, now / entry.item_bytes);
        sum += of_bytes(block, now, entry.first + begin + done, dot);
    }
    return sum;
}

struct Task {
    int64_t entry, number;
};

struct Batch {
    const SumEntry* entries;
    const Task* tasks;
    std::atomic<uint64_t>* sums;  // in any order: addition commutes
    Dot dot;

    static void run(void* context, int64_t index) {
        const Batch& batch = *static_cast<Batch*>(context);
        const Task& task = batch.tasks[index];
        batch.sums[task.entry].fetch_add(of_task(batch.entries[task.entry], task.number, batch.dot), std::memory_order_relaxed);
    }
};

}  // namespace

uint64_t checksum_bytes(const char* data, int64_t num_bytes, int64_t position) { return of_bytes(data, num_bytes, position, chosen_dot()); }

int64_t total_bytes(const SumEntry* entries, int64_t num_entries) {
    int64_t total = 0;
    for (int64_t e = 0; e < num_entries; e++) total += entries[e].numel * entries[e].item_bytes;
    return total;
}

void checksum(const SumEntry* entries, int64_t num_entries, uint64_t* sums, int num_threads) {
    std::vector<Task> tasks;
    for (int64_t e = 0; e < num_entries; e++)
        for (int64_t t = 0; t < num_tasks(entries[e]); t++) tasks.push_back({e, t});
    std::vector<std::atomic<uint64_t>> found(num_entries);  // zeros
    Batch batch{entries, tasks.data(), found.data(), chosen_dot()};
    if (total_bytes(entries, num_entries) < PARALLEL_BYTES) num_threads = 1;
    run_tasks(int64_t(tasks.size()), num_threads, Batch::run, &batch);
    for (int64_t e = 0; e < num_entries; e++) sums[e] = found[e].load(std::memory_order_relaxed);
}

}  // namespace numscope
