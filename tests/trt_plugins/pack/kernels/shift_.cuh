#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {
template <class T>
__global__ void shift_kernel(T* x, const T* by, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) x[i] = narrow<T>(widen(x[i]) + widen(by[i]));
}
}  // namespace detail

template <class T>
cudaError_t shift_(Stream stream, Out<T> x, In<T> by) {
  if (x.numel() == 0) return cudaSuccess;
  return launch(detail::shift_kernel<T>, unsigned((x.numel() + 127) / 128), 128, 0, stream, x.data, by.data, x.numel());
}

}  // namespace deployops
