// Work shared among threads, and the workspaces that they keep from call to call.

#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#if !defined(_WIN32)
#include <dlfcn.h>
#endif

#include "problem.h"

namespace longspan {

// Workspaces are kept: memory that is mapped afresh at every call costs more than the work saved.
class Workspaces {
  public:
    void* take(const Kernels& kernels) {
        {
            const std::lock_guard<std::mutex> held(lock_);
            std::vector<void*>& free = free_[&kernels];
            if (!free.empty()) {
                void* found = free.back();
                free.pop_back();
                kernels.reset(found);
                return found;
            }
        }
        return kernels.open();
    }
    void give(const Kernels& kernels, void* workspace) {
        const std::lock_guard<std::mutex> held(lock_);
        free_[&kernels].push_back(workspace);
    }
    void clear() {
        const std::lock_guard<std::mutex> held(lock_);
        for (auto& [kernels, free] : free_) {
            for (void* workspace : free) kernels->close(workspace);
            free.clear();
        }
    }

  private:
    std::mutex lock_;
    std::map<const Kernels*, std::vector<void*>> free_;
};

// Runs on so many threads: torch's own, where its OpenMP can be found in the process. Its threads
// spin for a while after every parallel loop, and any others would share a core with them meanwhile.
template <typename Run>
void on_threads(int64_t threads, const Run& run) {
    if (threads <= 1) return run();
#if !defined(_WIN32)
    using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
    static const Parallel torch_threads =
        reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    if (torch_threads != nullptr) {
        const auto call = [](void* own) { (*static_cast<const Run*>(own))(); };
        return torch_threads(call, const_cast<Run*>(&run), static_cast<unsigned>(threads), 0);
    }
#endif
    std::vector<std::thread> others;
    for (int64_t t = 1; t < threads; t++) others.emplace_back(run);
    run();
    for (std::thread& other : others) other.join();
}

// Calls work(task, workspace) for every task, on so many threads. Who does which task changes nothing:
// a task's result depends on the task alone.
template <typename Work>
void share(Workspaces& workspaces, const Kernels& kernels, int64_t threads, int64_t tasks, Work work) {
    std::atomic<int64_t> next{0};
    on_threads(threads < tasks ? threads : tasks, [&] {
        void* workspace = workspaces.take(kernels);
        for (int64_t task; (task = next.fetch_add(1)) < tasks;) work(task, workspace);
        workspaces.give(kernels, workspace);
    });
}

}  // namespace longspan
