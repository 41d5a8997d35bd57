// Borrows torch's OpenMP threads.
#pragma once

namespace numscope {

// Runs work(context) on num_threads threads at once, including the caller. Returns false without doing anything if there is no library.
bool run_on_openmp(int num_threads, void (*work)(void*), void* context);

}  // namespace numscope
