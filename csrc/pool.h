// A pool of threads that run numbered tasks.
#pragma once

#include <cstdint>

namespace numscope {

// Runs task(context, 0) ... task(context, num_tasks - 1) once each, on at most num_threads threads including the caller; returns when all are
// done. It uses torch's OpenMP threads if they are found. Otherwise it uses its own workers, which start on first use, sleep between jobs and
// are never joined, so a process may exit while they sleep. A forked child has none of them and starts its own. While the workers run one
// caller's job, another caller runs its job alone.
void run_tasks(int64_t num_tasks, int num_threads, void (*task)(void* context, int64_t index), void* context);

}  // namespace numscope
