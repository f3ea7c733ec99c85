#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {

inline cudaError_t refuses(cudaStream_t, In<float> x, Out<float>) {
  require(x.rank == 2, "x is ", x, "; expected a matrix");
  return cudaSuccess;
}

}  // namespace deployops
