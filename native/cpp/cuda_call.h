// A call of a CUDA kernel through the entries that a library's table knows (`KernelEntry`): the table is then the same
// for the processor and for CUDA. No type of the device's headers, so that g++ compiles the callers.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "deployops/operator_call.h"

namespace deployops {

struct CudaCall : OperatorCall {
  cudaStream_t stream;
  int tactic;  // from 0 on; 0 is the kernel's own choice
  void* lender;  // of memory on the device, for this call
  void* (*allocate)(void* lender, size_t bytes);
};

// Throws what CUDA says, with what to do where that is known.
inline void expect_success(cudaError_t error) {
  if (__builtin_expect(error == cudaSuccess, 1)) return;
  const std::string name = cudaGetErrorName(error);
  std::string text = name + ": " + cudaGetErrorString(error);
  if (name == "cudaErrorNoKernelImageForDevice" || name == "cudaErrorUnsupportedPtxVersion") {
    text += " (the library has no code for this GPU: `deployops compile --target ort-cuda --arch …` with its compute "
            "capability)";
  } else if (name == "cudaErrorInsufficientDriver") {
    text += " (the driver is older than the CUDA that the library was compiled with)";
  }
  throw std::runtime_error(text);
}

}  // namespace deployops
