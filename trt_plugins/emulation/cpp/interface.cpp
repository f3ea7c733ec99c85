#include "interface.h"

#include <cstdio>
#include <exception>

#include "device.h"
#include "memory.h"

#define DEPLOYOPS_EXPORT extern "C" __attribute__((visibility("default")))

using namespace deployops;

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
  emulation::close_memory();
  int outcome = 0;
  try {
    const cudaError_t error = emulation::operator_kernels(number)->entries[row](*call, Stream{nullptr, tactic});
    const std::string& failure = emulation::failure();
    if (error != cudaSuccess || !failure.empty()) {
      std::snprintf(text, size, "%s%s%s", failure.c_str(), failure.empty() ? "the launcher returns " : "",
                    failure.empty() ? cudaGetErrorName(error) : error == cudaSuccess ? "; and the launcher reports success" : "");
      outcome = 2;
    }
  } catch (const std::exception& e) {
    std::snprintf(text, size, "%s", e.what());
    outcome = 1;
  }
  emulation::read_memory();
  return outcome;
}
