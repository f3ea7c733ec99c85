#include "interface.h"

#include <cstdio>
#include <exception>

#include "device.h"
#include "given_stream.h"
#include "memory.h"

#define DEPLOYOPS_EXPORT extern "C" __attribute__((visibility("default")))

using namespace deployops;

// How many ways an operator has; 0 where there is no such operator.
DEPLOYOPS_EXPORT int deployops_emulated_tactics(size_t number) {
  const CudaKernels* kernels = emulation::operator_kernels(number);
  return kernels == nullptr ? 0 : kernels->tactics;
}

// What memory begins with, byte by byte; before the tensors of a call.
DEPLOYOPS_EXPORT void deployops_emulated_fill(unsigned char byte) { emulation::set_fill(byte); }
DEPLOYOPS_EXPORT void* deployops_emulated_memory(size_t bytes, size_t alignment, size_t offset, int at_end, int writable,
                                                 const char* name) {
  try {
    return emulation::guarded_memory(bytes, alignment, at_end != 0, writable != 0, name, offset);
  } catch (const std::exception&) {
    return nullptr;
  }
}
// Of a tensor whose first `sparse` bytes are 0, and which ends with what a call is about.
DEPLOYOPS_EXPORT void* deployops_emulated_large_memory(size_t bytes, size_t sparse, int writable, const char* name) {
  try {
    return emulation::guarded_memory(bytes, 16, true, writable != 0, name, 0, sparse);
  } catch (const std::exception&) {
    return nullptr;
  }
}
DEPLOYOPS_EXPORT void deployops_emulated_large(uint64_t elements, uint64_t at_end) {
  emulation::set_large_run({elements, at_end});
}
DEPLOYOPS_EXPORT uint64_t deployops_emulated_blocks() { return emulation::blocks_launched(); }
DEPLOYOPS_EXPORT void deployops_emulated_release() { emulation::release_guarded_memory(); }
DEPLOYOPS_EXPORT void deployops_emulated_catch_faults() { emulation::catch_faults(); }

// 0: done. 1: the launcher refuses. 2: a launch fails, or the launcher returns an error.
DEPLOYOPS_EXPORT int deployops_emulated_run(size_t number, size_t row, int tactic, uint32_t seed, int workers,
                                            OperatorCall* call, char* text, size_t size) {
  static const Parallel sequential;
  call->parallel = &sequential;
  text[0] = 0;
  const cudaStream_t stream = emulation::stream_of_calls();
  emulation::set_run_settings({seed, workers, stream});
  int outcome = 0;
  try {
    const CudaKernels& kernels = *emulation::operator_kernels(number);
    const size_t bytes = kernels.workspace(*call, row);
    emulation::expect_small(bytes, "workspace");
    void* const workspace =
        bytes == 0 ? nullptr : emulation::guarded_memory(bytes, workspace_alignment, true, true, "the workspace");
    emulation::close_memory();
    const cudaError_t error = kernels.entries[row](*call, Stream{stream, tactic, workspace});
    const std::string& failure = emulation::failure();
    const bool swallowed = error == cudaSuccess && emulation::device_would_tell();
    if (error != cudaSuccess || !failure.empty()) {
      std::snprintf(text, size, "%s%s%s", failure.c_str(), failure.empty() ? "the launcher returns " : "",
                    failure.empty() ? cudaGetErrorName(error) : swallowed ? "; and the launcher reports success" : "");
      outcome = 2;
    }
  } catch (const std::exception& e) {
    std::snprintf(text, size, "%s", e.what());
    outcome = 1;
  }
  emulation::read_memory();
  return outcome;
}
