// Kernels on the processor, with ONNX Runtime's own threads and memory.
#pragma once

#include "binding.h"
#include "level.h"

namespace deployops::ort {
namespace {

// The runtime, its threads and memory, as kernels see them.
struct Lender {
  const Binding& binding;
  OrtKernelContext* context;

  static void run(void* self, void (*task)(void*, size_t), void* work, size_t count) {
    const auto& lender = *static_cast<const Lender*>(self);
    const Api& api = lender.binding.api;
    check(api, api.KernelContext_ParallelFor(lender.context, task, count, 0, work));
  }

  // ONNX Runtime promises no alignment: the address that it gave stands before the aligned one.
  static constexpr size_t alignment = 64;
  static void* allocate(void* self, size_t bytes) {
    const auto& lender = *static_cast<const Lender*>(self);
    void* given = nullptr;
    if (bytes > SIZE_MAX - 2 * alignment) throw std::bad_alloc();
    with_allocator(lender, [&](const Api& api, OrtAllocator* allocator) {
      check(api, api.AllocatorAlloc(allocator, bytes + 2 * alignment, &given));
    });
    if (given == nullptr) throw std::bad_alloc();
    const auto address = (reinterpret_cast<uintptr_t>(given) + 2 * alignment - 1) & ~uintptr_t(alignment - 1);
    reinterpret_cast<void**>(address)[-1] = given;
    return reinterpret_cast<void*>(address);
  }
  static void release(void* self, void* memory) {
    const auto& lender = *static_cast<const Lender*>(self);
    with_allocator(lender, [&](const Api& api, OrtAllocator* allocator) {
      const Status ignored(api, api.AllocatorFree(allocator, static_cast<void**>(memory)[-1]));
    });
  }

 private:
  template <class F>
  static void with_allocator(const Lender& lender, F&& f) {
    const Api& api = lender.binding.api;
    OrtAllocator* allocator = nullptr;
    check(api, api.KernelContext_GetAllocator(lender.context, lender.binding.memory, &allocator));
    const std::unique_ptr<OrtAllocator, void (*)(OrtAllocator*)> owner(allocator, api.ReleaseAllocator);
    f(api, allocator);
  }
};

// One call. See cuda_target.h for what a target is.
class Target {
 public:
  static constexpr const char* provider = nullptr;  // the CPU's

  static void prepare(Binding& binding) {
    check(binding.api, binding.api.CreateCpuMemoryInfo(1 /* arena */, 0 /* default */, &binding.memory));
  }
  static size_t level() { return chosen_level(); }

  Target(const Binding& binding, OrtKernelContext* context) : lender_{binding, context} {}

  void* allocate(size_t bytes) { return held_.emplace_back(new char[bytes]).get(); }
  void copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

  void run(KernelEntry entry, const OperatorCall& call) {
    Runtime runtime;
    runtime.context = &lender_;
    runtime.run = &Lender::run;
    runtime.allocate = &Lender::allocate;
    runtime.release = &Lender::release;
    const Parallel parallel(runtime);
    OperatorCall complete = call;
    complete.parallel = &parallel;
    entry(complete);
  }

 private:
  Lender lender_;
  std::vector<std::unique_ptr<char[]>> held_;
};

}  // namespace
}  // namespace deployops::ort
