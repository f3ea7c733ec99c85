// Threads for callers that lend none (torch, through the C interface). ONNX Runtime lends its own.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "deployops/parallel.h"

namespace deployops {

// Starts threads when they are first asked for, and keeps them. One call at a time has them; another one that
// comes meanwhile runs on its own thread alone, and so does everything after a fork.
class ThreadPool {
 public:
  static ThreadPool& instance() {
    static ThreadPool* pool = new ThreadPool;  // never destroyed: its threads may outlive the static objects
    return *pool;
  }

  void run(int threads, void (*task)(void*, size_t), void* work, size_t count) {
    std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (!turn.owns_lock() || threads <= 1 || process_ != getpid()) {
      for (size_t i = 0; i < count; ++i) task(work, i);
      return;
    }
    {
      std::lock_guard<std::mutex> lock(state_);
      while (int(workers_.size()) < threads - 1) {
        const size_t rank = workers_.size();
        workers_.emplace_back([this, rank] { serve(rank); });
        workers_.back().detach();
      }
      task_ = task;
      work_ = work;
      count_ = count;
      next_.store(0, std::memory_order_relaxed);
      invited_ = size_t(threads - 1);
      active_ = invited_;
      ++round_;
    }
    wake_.notify_all();
    take();
    std::unique_lock<std::mutex> lock(state_);
    done_.wait(lock, [this] { return active_ == 0; });
  }

 private:
  void take() {
    for (size_t i; (i = next_.fetch_add(1)) < count_;) task_(work_, i);
  }

  void serve(size_t rank) {
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(state_);
    for (;;) {
      wake_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (rank >= invited_) continue;
      lock.unlock();
      take();
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  std::mutex turn_, state_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> workers_;
  void (*task_)(void*, size_t) = nullptr;
  void* work_ = nullptr;
  size_t count_ = 0, invited_ = 0, active_ = 0;
  std::atomic<size_t> next_{0};
  uint64_t round_ = 0;
  pid_t process_ = getpid();
};

}  // namespace deployops
