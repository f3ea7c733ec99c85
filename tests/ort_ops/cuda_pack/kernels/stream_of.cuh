#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {
template <class T>
__global__ void stream_of_kernel(T number, int64_t n, T* y) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = number;
}
}  // namespace detail

inline cudaError_t stream_of(Stream stream, In<int64_t>, Out<int64_t> y) {
  const auto number = int64_t(reinterpret_cast<uintptr_t>(stream.stream));
  return launch(detail::stream_of_kernel<int64_t>, blocks_for(y.numel(), 128), 128, 0, stream, number, y.numel(), y.data);
}

}  // namespace deployops
