#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {
template <class T>
__global__ void cuts_kernel(const T* x, int64_t n, T low, T high, T* below, T* above) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  below[i] = x[i] >= low ? T(0) : x[i] - low;
  above[i] = x[i] <= high ? T(0) : x[i] - high;
}
}  // namespace detail

template <class T>
cudaError_t cuts(Stream stream, In<T> x, double low, double high, Out<T> below, Out<T> above) {
  if (x.numel() == 0) return cudaSuccess;
  const unsigned blocks = unsigned((x.numel() + 127) / 128);
  return launch(detail::cuts_kernel<T>, blocks, 128, 0, stream, x.data, x.numel(), T(low), T(high), below.data,
                above.data);
}

}  // namespace deployops
