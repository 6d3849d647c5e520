// Written by kvgen from gemma3.kv and yours to keep: kvgen claims no right to it. Edit gemma3.kv.
// kvgen: gemma3.kv source 9c5354bdbcbb body 7423a898ca86 codegen 1
// Threads: torch's own, and how work is shared among them.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kv {

/// The pool of the OpenMP runtime that the process has already loaded, torch's own: a second pool would spin against it.
struct Pool {
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*most_threads)() = nullptr;
  int (*thread_number)() = nullptr;
};

inline int find_pool(dl_phdr_info* library, std::size_t, void* found) {
  if (library->dlpi_name == nullptr || std::strstr(library->dlpi_name, "libgomp") == nullptr) return 0;
  void* handle = dlopen(library->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return 0;
  Pool& pool = *static_cast<Pool*>(found);
  pool.parallel = reinterpret_cast<decltype(pool.parallel)>(dlsym(handle, "GOMP_parallel"));
  pool.most_threads = reinterpret_cast<decltype(pool.most_threads)>(dlsym(handle, "omp_get_max_threads"));
  pool.thread_number = reinterpret_cast<decltype(pool.thread_number)>(dlsym(handle, "omp_get_thread_num"));
  return pool.parallel != nullptr && pool.most_threads != nullptr && pool.thread_number != nullptr;
}

inline const Pool* pool() {
  static const Pool found = [] {
    Pool candidate;
    return dl_iterate_phdr(find_pool, &candidate) != 0 ? candidate : Pool();
  }();
  return found.parallel != nullptr ? &found : nullptr;
}

/// As many as torch uses, or 1: any other number would tear its team down.
inline int most_threads() { return pool() != nullptr ? std::max(1, pool()->most_threads()) : 1; }

/// How many threads the pool has, 0 where there is no pool.
inline int64_t pool_threads() { return pool() != nullptr ? most_threads() : 0; }

/// Items 0 to `count` - 1, each done once by one of `threads`. A thread takes the items of its own range, then of others'.
template <class Work>
class Share {
 public:
  Share(Work& work, int count, int threads) : work_(work), count_(count), threads_(std::min(threads, kMost)) {
    for (int t = 0; t < threads_; ++t) next_[t].item.store(start(t), std::memory_order_relaxed);
  }

  void run() {
    if (threads_ == 1) {  // without atomics: each would wait for all that was stored before
      for (int item = 0; item < count_; ++item) work_(item, 0);
      return;
    }
    pool()->parallel([](void* self) { static_cast<Share*>(self)->work_on(pool()->thread_number()); }, this,
                     static_cast<unsigned>(threads_), 0);
  }

 private:
  static constexpr int kMost = 1024;
  struct alignas(64) Next {
    std::atomic<int> item;
  };

  int start(int thread) const { return static_cast<int>(static_cast<int64_t>(count_) * thread / threads_); }

  void work_on(int thread) {
    for (int i = 0; i < threads_; ++i) {
      const int range = (thread + i) % threads_, end = start(range + 1);
      for (;;) {
        const int item = next_[range].item.fetch_add(1, std::memory_order_relaxed);
        if (item >= end) break;
        work_(item, thread);
      }
    }
  }

  Work& work_;
  int count_, threads_;
  Next next_[kMost];
};

}  // namespace kv
