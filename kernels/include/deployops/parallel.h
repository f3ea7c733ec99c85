// How a kernel uses threads and scratch memory, both of the runtime that calls it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <type_traits>
#include <utility>

namespace deployops {

// What a runtime lends: plain function pointers, so that it is one type for every runtime.
struct Runtime {
  void* context = nullptr;
  // Calls task(work, 0) … task(work, count − 1), in any order on any threads, and returns when all are done.
  // The task does not throw. Null: one thread.
  void (*run)(void* context, void (*task)(void* work, size_t index), void* work, size_t count) = nullptr;
  // Memory aligned to 64 bytes; throws std::bad_alloc. Null: operator new.
  void* (*allocate)(void* context, size_t bytes) = nullptr;
  void (*release)(void* context, void* memory) = nullptr;
};

// Memory that goes when it leaves the scope.
template <class T>
class Scratch {
 public:
  Scratch(const Runtime& runtime, int64_t count) : runtime_(runtime) {
    static_assert(std::is_trivially_destructible_v<T>);
    const size_t bytes = size_t(count) * sizeof(T);
    if (bytes == 0) return;
    data_ = static_cast<T*>(runtime_.allocate ? runtime_.allocate(runtime_.context, bytes)
                                              : ::operator new(bytes, std::align_val_t(64)));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (data_ == nullptr) return;
    if (runtime_.allocate) {
      runtime_.release(runtime_.context, data_);
    } else {
      ::operator delete(data_, std::align_val_t(64));
    }
  }
  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  const Runtime& runtime_;
  T* data_ = nullptr;
};

// The first argument of every kernel.
class Parallel {
 public:
  Parallel() = default;
  explicit Parallel(const Runtime& runtime) : runtime_(runtime) {}

  // Calls f(begin, end) for ranges that cover 0 … n, each of at least `grain` where n allows; an exception of f
  // reaches the caller, the first one where there are several. Nothing is called for n = 0.
  template <class F>
  void operator()(int64_t n, int64_t grain, F&& f) const {
    if (n <= 0) return;
    const int64_t blocks = grain < 1 ? n : (n < 2 * grain ? 1 : n / grain);
    if (blocks == 1 || runtime_.run == nullptr) {
      f(int64_t(0), n);
      return;
    }
    struct Work {
      std::remove_reference_t<F>* f;
      int64_t n, blocks;
      std::atomic<bool> failed{false};
      std::exception_ptr error;
    } work{&f, n, blocks, {}, {}};
    runtime_.run(
        runtime_.context,
        [](void* shared, size_t index) {
          auto& w = *static_cast<Work*>(shared);
          if (w.failed.load(std::memory_order_relaxed)) return;
          try {
            // n/blocks whole parts and the rest spread: no product that could overflow
            const int64_t i = int64_t(index), part = w.n / w.blocks, rest = w.n % w.blocks;
            const int64_t begin = i * part + (i < rest ? i : rest);
            (*w.f)(begin, begin + part + (i < rest ? 1 : 0));
          } catch (...) {
            if (!w.failed.exchange(true)) w.error = std::current_exception();
          }
        },
        &work, size_t(blocks));
    if (work.error) std::rethrow_exception(work.error);
  }

  // Uninitialised memory for `count` elements; call it on the thread that called the kernel.
  template <class T>
  Scratch<T> scratch(int64_t count) const {
    return Scratch<T>(runtime_, count);
  }

 private:
  Runtime runtime_;
};

}  // namespace deployops
