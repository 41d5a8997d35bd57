#include "observe.h"

#include <cstdlib>
#include <cstring>

#include "pool.h"
#include "select.h"

namespace numscope {
namespace {

constexpr int64_t PARALLEL_NUMEL = 262144;  // below, waking a sleeping thread costs more than it saves

int64_t num_chunks(int64_t numel) { return (numel + CHUNK - 1) / CHUNK; }

void chunk_of(const Entry& entry, int64_t index, int groups, Row& out) {
    const Dtype dtype = Dtype(entry.dtype);
    const int64_t begin = index * CHUNK, left = entry.numel - begin;
    const char* data = reinterpret_cast<const char*>(entry.address) + begin * element_bytes(dtype);
    summarize_chunk(dtype, data, left < CHUNK ? left : CHUNK, groups, out);
}

// A tensor's chunks are merged with each other first, so what is added to the row does not depend on the row's old content.
template <class Part>
void fold(const Entry& entry, Part part) {
    Row& row = *reinterpret_cast<Row*>(entry.row_address);
    const int64_t chunks = num_chunks(entry.numel);
    if (chunks == 1) return merge(row, part(0));
    Fold fold;
    for (int64_t i = 0; i < chunks; i++) fold.add(part(i));
    merge(row, fold.total());
}

struct Batch {
    const Entry* entries;
    int64_t num_entries;
    int groups;
    const int64_t* first_task;  // of each entry
    Row* parts;                 // of each task

    static void task(void* context, int64_t index) {
        const Batch& batch = *static_cast<Batch*>(context);
        int64_t low = 0, high = batch.num_entries - 1;  // the last entry that starts at or before index; earlier ones there are empty
        while (low < high) {
            const int64_t middle = (low + high + 1) / 2;
            if (batch.first_task[middle] <= index) low = middle;
            else high = middle - 1;
        }
        chunk_of(batch.entries[low], index - batch.first_task[low], batch.groups, batch.parts[index]);
    }
};

bool observe_parallel(const Entry* entries, int64_t num_entries, int groups, int num_threads) {
    int64_t tasks = 0;
    int64_t* first_task = static_cast<int64_t*>(malloc(sizeof(int64_t) * num_entries));
    if (!first_task) return false;
    for (int64_t e = 0; e < num_entries; e++) {
        first_task[e] = tasks;
        tasks += num_chunks(entries[e].numel);
    }
    Row* parts = static_cast<Row*>(malloc(sizeof(Row) * tasks));
    if (!parts) {
        free(first_task);
        return false;
    }
    Batch batch{entries, num_entries, groups, first_task, parts};
    run_tasks(tasks, num_threads, Batch::task, &batch);
    for (int64_t e = 0; e < num_entries; e++) fold(entries[e], [&](int64_t i) -> const Row& { return parts[first_task[e] + i]; });
    free(parts);
    free(first_task);
    return true;
}

}  // namespace

int64_t total_numel(const Entry* entries, int64_t num_entries) {
    int64_t total = 0;
    for (int64_t e = 0; e < num_entries; e++) total += entries[e].numel;
    return total;
}

void observe(const Entry* entries, int64_t num_entries, int groups, int num_threads) {
    const bool parallel = num_threads > 1 && total_numel(entries, num_entries) >= PARALLEL_NUMEL;
    if (parallel && observe_parallel(entries, num_entries, groups, num_threads)) return;
    Row part;
    for (int64_t e = 0; e < num_entries; e++) {
        fold(entries[e], [&](int64_t i) -> const Row& {
            chunk_of(entries[e], i, groups, part);
            return part;
        });
    }
}

}  // namespace numscope
