// Borrows torch's OpenMP threads. They spin for a while after each of torch's loops, so additional threads would have to wait for a core. The
// library is the one that torch has loaded into the process; nothing is linked. If it is not found (another build of torch, another system),
// our own pool is used.
#include "openmp.h"

#include <unistd.h>

#if defined(__linux__)
#include <dlfcn.h>
#include <link.h>

#include <cstring>
#endif

namespace numscope {
namespace {

using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);  // GOMP_parallel, which the GNU, LLVM and Intel libraries provide

#if defined(__linux__)
struct Search {
    Parallel found;
    bool torchs;
};

int look_at(dl_phdr_info* info, size_t, void* context) {
    Search& search = *static_cast<Search*>(context);
    const char* path = info->dlpi_name;
    if (!path || !(strstr(path, "libgomp") || strstr(path, "libomp") || strstr(path, "libiomp5"))) return 0;
    void* library = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
    if (!library) return 0;
    const bool torchs = strstr(path, "/torch") != nullptr;  // another package may have loaded a second library
    if (Parallel parallel = reinterpret_cast<Parallel>(dlsym(library, "GOMP_parallel"))) {
        if (!search.found || (torchs && !search.torchs)) search = {parallel, torchs};
    }
    dlclose(library);  // only decrements the reference count: torch keeps it loaded
    return 0;
}

Parallel find() {
    Search search{nullptr, false};
    dl_iterate_phdr(look_at, &search);
    return search.found;
}
#else
Parallel find() { return nullptr; }
#endif

}  // namespace

bool run_on_openmp(int num_threads, void (*work)(void*), void* context) {
    static const Parallel parallel = find();
    static const pid_t pid = getpid();
    if (!parallel || getpid() != pid) return false;  // a forked child has none of the library's threads, and the library is not aware of that
    parallel(work, context, unsigned(num_threads), 0);
    return true;
}

}  // namespace numscope
