#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {
template <class T>
__global__ void blend_kernel(const T* x, const T* bias, const bool* mask, int64_t n, T* y) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  const auto v = narrow<T>(widen(x[i]) + (bias ? widen(bias[i]) : 0.0f));
  y[i] = narrow<T>(widen(v) * (mask && !mask[i] ? 0.0f : 1.0f));
}
}  // namespace detail

template <class T>
cudaError_t blend(Stream stream, In<T> x, In<T> bias, In<bool> mask, Out<T> y) {
  if (x.numel() == 0) return cudaSuccess;
  return launch(detail::blend_kernel<T>, unsigned((x.numel() + 127) / 128), 128, 0, stream, x.data, bias.data,
                mask.data, x.numel(), y.data);
}

}  // namespace deployops
