#pragma once
#include <optional>
#include <string_view>

#include "deployops/cuda/launch.h"

namespace deployops {

constexpr int attributes_tactics = 2;

namespace detail {
template <class T>
__global__ void attributes_kernel(const T* x, int64_t n, T count, T scale, T* y) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
    y[i] = x[i] * count + scale;
  }
}
}  // namespace detail

template <class T>
cudaError_t attributes(Stream stream, In<T> x, int64_t count, double scale, bool, std::string_view mode, Span<int64_t>,
                       Span<double>, std::optional<double>, Out<T> y) {
  require(mode == "add" || mode == "max", "mode is ", mode, "; expected add or max");
  if (x.numel() == 0) return cudaSuccess;
  const unsigned threads = stream.tactic == 0 ? 128 : 256;
  return launch(detail::attributes_kernel<T>, blocks_for(x.numel(), threads), threads, 0, stream, x.data, x.numel(),
                T(count), T(scale), y.data);
}

}  // namespace deployops
