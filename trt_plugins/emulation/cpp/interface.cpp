#include "interface.h"

#include <cstdio>
#include <cstring>
#include <exception>

#include "device.h"
#include "memory.h"

#define DEPLOYOPS_EXPORT extern "C" __attribute__((visibility("default")))

using namespace deployops;

namespace {

// What a kernel asks for, all NaN. As aligned as it is promised to be, it may end before its page does: what is behind it
// there belongs to nobody, and has to stay as it is.
class Workspace {
 public:
  explicit Workspace(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    memory_ = static_cast<unsigned char*>(
        emulation::guarded_memory(bytes, workspace_alignment, true, true, "the workspace"));
    std::memset(memory_, 0xff, bytes);
  }
  void* memory() const { return memory_; }
  bool exceeded() const {
#if !defined(DEPLOYOPS_EMULATION_ADDRESS)  // which sees such a write itself
    for (size_t k = bytes_; k % workspace_alignment != 0; ++k) {
      if (memory_[k] != 0xff) return true;
    }
#endif
    return false;
  }

 private:
  size_t bytes_;
  unsigned char* memory_ = nullptr;
};

}  // namespace

// How many ways an operator has; 0 where there is no such operator.
DEPLOYOPS_EXPORT int deployops_emulated_tactics(size_t number) {
  const CudaKernels* kernels = emulation::operator_kernels(number);
  return kernels == nullptr ? 0 : kernels->tactics;
}

DEPLOYOPS_EXPORT void* deployops_emulated_memory(size_t bytes, size_t alignment, int at_end, int writable,
                                                 const char* name) {
  try {
    return emulation::guarded_memory(bytes, alignment, at_end != 0, writable != 0, name);
  } catch (const std::exception&) {
    return nullptr;
  }
}
DEPLOYOPS_EXPORT void deployops_emulated_release() { emulation::release_guarded_memory(); }
DEPLOYOPS_EXPORT void deployops_emulated_catch_faults() { emulation::catch_faults(); }

// 0: done. 1: the launcher refuses. 2: a launch fails, or the launcher returns an error.
DEPLOYOPS_EXPORT int deployops_emulated_run(size_t number, size_t row, int tactic, uint32_t seed, int workers,
                                            OperatorCall* call, char* text, size_t size) {
  static const Parallel sequential;
  call->parallel = &sequential;
  text[0] = 0;
  emulation::set_run_settings({seed, workers});
  int outcome = 0;
  try {
    const CudaKernels& kernels = *emulation::operator_kernels(number);
    const size_t bytes = kernels.workspace(*call, row);
    const Workspace workspace(bytes);
    emulation::close_memory();
    const cudaError_t error = kernels.entries[row](*call, Stream{nullptr, tactic, workspace.memory()});
    const std::string& failure = emulation::failure();
    if (error != cudaSuccess || !failure.empty()) {
      std::snprintf(text, size, "%s%s%s", failure.c_str(), failure.empty() ? "the launcher returns " : "",
                    failure.empty() ? cudaGetErrorName(error) : error == cudaSuccess ? "; and the launcher reports success" : "");
      outcome = 2;
    }
    emulation::read_memory();
    if (outcome == 0 && workspace.exceeded()) {
      std::snprintf(text, size, "the kernel writes beyond the end of the workspace, which has %zu bytes", bytes);
      outcome = 2;
    }
  } catch (const std::exception& e) {
    std::snprintf(text, size, "%s", e.what());
    outcome = 1;
  }
  emulation::read_memory();
  return outcome;
}
