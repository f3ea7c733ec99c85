// The C interface of an emulated library: what `trt_plugins.emulation.worker` calls.
#pragma once

#include "deployops/cuda/operator_call.h"

namespace deployops::emulation {

// Null where there are not so many.
const CudaKernels* operator_kernels(size_t number);

}  // namespace deployops::emulation
