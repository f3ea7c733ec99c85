#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {
template <class T>
__global__ void tile_to_kernel(const T* x, int64_t length, T* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i % length];
}
}  // namespace detail

template <class T>
cudaError_t tile_to(Stream stream, In<T> x, Out<T> y) {
  if (y.numel() == 0) return cudaSuccess;
  return launch(detail::tile_to_kernel<T>, unsigned((y.numel() + 127) / 128), 128, 0, stream, x.data, x.numel(),
                y.data, y.numel());
}

}  // namespace deployops
