// One call of an operator on the device, as adapters (TensorRT, ONNX Runtime, the emulation) hand it to the generated
// entry of a kernel: see native/templates/cuda_entries.cpp.j2. `OperatorCall::parallel` is for lists of tensors only.
#pragma once

#include "deployops/cuda/launch.h"
#include "deployops/operator_call.h"

namespace deployops {

// Launches the kernel for one combination of dtypes. Throws what the launcher throws, InputError for inputs it refuses.
using CudaEntry = cudaError_t (*)(const OperatorCall&, Stream);

struct CudaKernels {
  const CudaEntry* entries;  // by combination of dtypes, in the order of `kernel_rows`
  int tactics;               // ways to compute the same: Stream::tactic is 0 … tactics − 1
};

}  // namespace deployops
