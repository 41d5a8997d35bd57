// Threads that take numbered tasks.
#pragma once

#include <cstdint>

namespace numscope {

// Runs task(context, 0) ... task(context, num_tasks - 1), each once, on num_threads threads at most, the caller among them; returns when all are
// done. Torch's OpenMP threads are taken where they are found. Else workers of our own, which start on first use, sleep between jobs and are
// never joined: a process may exit while they sleep. A forked child has none of them and starts its own. While one caller's job runs on
// them, another caller does its job alone.
void run_tasks(int64_t num_tasks, int num_threads, void (*task)(void* context, int64_t index), void* context);

}  // namespace numscope
