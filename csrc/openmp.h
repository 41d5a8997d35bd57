// Torch's own OpenMP threads, borrowed.
#pragma once

namespace numscope {

// Runs work(context) on num_threads threads at once, the caller among them; false, and nothing done, where there is no library to borrow from.
bool run_on_openmp(int num_threads, void (*work)(void*), void* context);

}  // namespace numscope
