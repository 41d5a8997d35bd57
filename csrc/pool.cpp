#include "pool.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "openmp.h"

namespace numscope {
namespace {

struct Job {
    int64_t num_tasks;
    void (*task)(void*, int64_t);
    void* context;
    std::atomic<int64_t> next{0};

    void work() {
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_tasks;) task(context, i);
    }
};

class Pool {
public:
    const pid_t pid = getpid();

    bool run(Job& job, int num_helpers) {
        std::unique_lock<std::mutex> turn(one_job_, std::try_to_lock);
        if (!turn.owns_lock()) return false;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            while (num_workers_ < num_helpers) {
                try {
                    std::thread([this] { serve(); }).detach();
                } catch (const std::system_error&) {  // no further thread can be created: continue with fewer
                    break;
                }
                num_workers_++;
            }
            job_ = &job;
            seats_ = num_helpers;
        }
        if (num_helpers == 1) wake_.notify_one();
        else wake_.notify_all();
        job.work();
        std::unique_lock<std::mutex> lock(mutex_);
        job_ = nullptr;  // a worker that wakes too late finds nothing; only active workers are waited for
        done_.wait(lock, [this] { return num_active_ == 0; });
        return true;
    }

private:
    void serve() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return job_ && seats_ > 0; });
            Job* job = job_;
            seats_--;
            num_active_++;
            lock.unlock();
            job->work();
            lock.lock();
            if (--num_active_ == 0) done_.notify_one();
        }
    }

    std::mutex one_job_, mutex_;
    std::condition_variable wake_, done_;
    Job* job_ = nullptr;
    int seats_ = 0, num_active_ = 0, num_workers_ = 0;
};

std::atomic<Pool*> current{nullptr};

Pool* pool() {
    Pool* p = current.load(std::memory_order_acquire);
    if (p && p->pid == getpid()) return p;
    // First use, or a forked child: the parent's pool is left as it is, since its threads do not exist here and its locks may be held.
    Pool* fresh = new Pool;
    if (current.compare_exchange_strong(p, fresh)) return fresh;
    delete fresh;
    return p;
}

}  // namespace

void run_tasks(int64_t num_tasks, int num_threads, void (*task)(void*, int64_t), void* context) {
    if (num_threads > 64) num_threads = 64;
    if (num_threads > num_tasks) num_threads = int(num_tasks);
    Job job{num_tasks, task, context};
    if (num_threads > 1) {
        if (run_on_openmp(num_threads, [](void* job) { static_cast<Job*>(job)->work(); }, &job)) return;
        if (pool()->run(job, num_threads - 1)) return;
    }
    job.work();
}

}  // namespace numscope
