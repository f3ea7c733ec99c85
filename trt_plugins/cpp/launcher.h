// What an operator's CUDA object shows to its plugin: no type of the device's headers, so that g++ compiles the plugin.
#pragma once

#include <cuda_runtime_api.h>

#include "deployops/operator_call.h"

namespace deployops::trt {

struct Launcher {
  // Launches the kernel for one combination of dtypes (`row` of the plugin's table), with one of its tactics, from 0
  // on. Throws what the kernel's launcher throws: InputError for inputs that it refuses. `scratch`: as many bytes as
  // `workspace` says for the same call, aligned (deployops/workspace.h).
  cudaError_t (*launch)(const OperatorCall& call, size_t row, cudaStream_t stream, int tactic, void* scratch);
  int tactics;
  size_t (*workspace)(const OperatorCall& call, size_t row);  // bytes; null: it needs none
};

}  // namespace deployops::trt
