#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {

constexpr int positives_threads = 128;

// One block goes over x in steps of its size: each thread finds its place behind the positive numbers of those before it.
// Reads n, writes at most n numbers and one size.
template <class T>
__global__ void positives_kernel(const T* x, int64_t n, T* y, int32_t* size) {
  __shared__ int before[positives_threads + 1];
  int64_t found = 0;
  for (int64_t begin = 0; begin < n; begin += positives_threads) {
    const int64_t i = begin + threadIdx.x;
    const bool take = i < n && widen(x[i]) > 0;
    before[threadIdx.x + 1] = take;
    if (threadIdx.x == 0) before[0] = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int k = 0; k < positives_threads; ++k) before[k + 1] += before[k];
    }
    __syncthreads();
    if (take) y[found + before[threadIdx.x]] = x[i];
    found += before[positives_threads];
    __syncthreads();
  }
  if (threadIdx.x == 0) *size = int32_t(found);
}

}  // namespace detail

template <class T>
cudaError_t positives(Stream stream, In<T> x, Out<T> y, Out<int32_t> size) {
  return launch(detail::positives_kernel<T>, 1, detail::positives_threads, 0, stream, x.data, x.numel(), y.data,
                size.data);
}

}  // namespace deployops
