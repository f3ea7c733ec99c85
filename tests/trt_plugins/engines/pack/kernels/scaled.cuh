#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {
template <class T>
__global__ void scaled_kernel(const T* x, float factor, int64_t n, T* y) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = narrow<T>(widen(x[i]) * factor);
}
}  // namespace detail

template <class T>
cudaError_t scaled(Stream stream, In<T> x, double factor, Out<T> y) {
  return launch(detail::scaled_kernel<T>, blocks_for(y.numel(), 128), 128, 0, stream, x.data, float(factor), y.numel(),
                y.data);
}

}  // namespace deployops
