// Work shared among threads, and the workspaces that they keep from call to call.

#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

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

// Calls work(task, workspace) for every task, on so many threads. Who does which task changes nothing:
// a task's result depends on the task alone.
template <typename Work>
void share(Workspaces& workspaces, const Kernels& kernels, int64_t threads, int64_t tasks, Work work) {
    std::atomic<int64_t> next{0};
    const auto run = [&] {
        void* workspace = workspaces.take(kernels);
        for (int64_t task; (task = next.fetch_add(1)) < tasks;) work(task, workspace);
        workspaces.give(kernels, workspace);
    };
    std::vector<std::thread> others;
    for (int64_t t = 1; t < threads && t < tasks; t++) others.emplace_back(run);
    run();
    for (std::thread& other : others) other.join();
}

}  // namespace longspan
