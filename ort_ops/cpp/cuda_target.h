// Kernels on an NVIDIA GPU, under ONNX Runtime's CUDA execution provider: on its stream, with its memory.
//
// All inputs and outputs are in the GPU's memory, and no byte of them is read here. Nothing waits for the GPU: memory that
// a call takes goes back to the provider's arena when the kernel is queued, as that of the provider's own kernels does,
// and whoever gets it next uses it on the same stream, later.
#pragma once

#include "binding.h"
#include "cuda_call.h"

namespace deployops::ort {
namespace {

// One call.
class Target {
 public:
  static constexpr const char* provider = "CUDAExecutionProvider";

  static void prepare(Binding&) {}
  static size_t level() { return 0; }

  Target(const Binding& binding, OrtKernelContext* context) : api_(binding.api), context_(context) {
    void* stream = nullptr;
    check(api_, api_.KernelContext_GetGPUComputeStream(context, &stream));
    stream_ = static_cast<cudaStream_t>(stream);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target() {
    for (void* memory : held_) {
      if (memory != nullptr) const Status ignored(api_, api_.AllocatorFree(allocator_, memory));
    }
    if (allocator_ != nullptr) api_.ReleaseAllocator(allocator_);
  }

  // Memory where the tensors are, until the call is over.
  void* allocate(size_t bytes) {
    if (bytes == 0) return nullptr;
    if (allocator_ == nullptr) allocator_ = allocator();
    held_.push_back(nullptr);
    check(api_, api_.AllocatorAlloc(allocator_, bytes, &held_.back()));
    if (held_.back() != nullptr) return held_.back();
    held_.pop_back();
    throw std::bad_alloc();
  }

  void copy(void* to, const void* from, size_t bytes) {
    expect_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
  }

  void run(KernelEntry entry, const OperatorCall& call) {
    const Parallel one_thread;
    const auto allocated = [](void* self, size_t bytes) { return static_cast<Target*>(self)->allocate(bytes); };
    CudaCall on_device{call, stream_, 0, this, allocated};
    on_device.parallel = &one_thread;
    entry(on_device);
  }

 private:
  OrtAllocator* allocator() {
    int device = 0;
    expect_success(cudaGetDevice(&device));
    OrtMemoryInfo* memory = nullptr;
    check(api_, api_.CreateMemoryInfo("Cuda", 0 /* device */, device, 0 /* default */, &memory));
    const std::unique_ptr<OrtMemoryInfo, void (*)(OrtMemoryInfo*)> owner(memory, api_.ReleaseMemoryInfo);
    OrtAllocator* found = nullptr;
    check(api_, api_.KernelContext_GetAllocator(context_, memory, &found));
    return found;
  }

  const Api& api_;
  OrtKernelContext* context_;
  cudaStream_t stream_ = nullptr;
  OrtAllocator* allocator_ = nullptr;
  std::vector<void*> held_;
};

}  // namespace
}  // namespace deployops::ort
