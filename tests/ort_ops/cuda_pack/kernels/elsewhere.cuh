#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {
template <class T>
__global__ void elsewhere_kernel(const T* x, int64_t n, T* y) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i];
}
}  // namespace detail

inline cudaError_t elsewhere(cudaStream_t, In<float> x, Out<float> y) {
  return launch(detail::elsewhere_kernel<float>, 1, 128, 0, nullptr, x.data, x.numel(), y.data);
}

}  // namespace deployops
