#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {
template <class T>
__global__ void plus_kernel(const T* x, int64_t of_x, const T* y, int64_t of_y, int64_t n, T* out) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = narrow<T>(widen(x[i % of_x]) + widen(y[i % of_y]));
}
}  // namespace detail

template <class T>
cudaError_t plus(Stream stream, In<T> x, In<T> y, Out<T> out) {
  require(x.numel() == out.numel() || x.numel() == 1, "x is ", x, "; expected as many numbers as come out, or one");
  require(y.numel() == out.numel() || y.numel() == 1, "y is ", y, "; expected as many numbers as come out, or one");
  return launch(detail::plus_kernel<T>, blocks_for(out.numel(), 128), 128, 0, stream, x.data, x.numel(), y.data,
                y.numel(), out.numel(), out.data);
}

}  // namespace deployops
