#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {
constexpr int row_sums_threads = 64, row_sums_part = 256;

inline int64_t row_sums_parts(int64_t columns) { return columns / row_sums_part + 1; }

__device__ inline float row_sums_of_block(float sum) {
  __shared__ float held[row_sums_threads];
  held[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned step = row_sums_threads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) held[threadIdx.x] += held[threadIdx.x + step];
    __syncthreads();
  }
  return held[0];
}

// A block for each part of a row.
template <class T>
__global__ void row_sums_first(const T* x, int64_t columns, int64_t parts, float* sums) {
  const int64_t row = blockIdx.x / parts, part = blockIdx.x % parts;
  const int64_t last = columns < (part + 1) * row_sums_part ? columns : (part + 1) * row_sums_part;
  float sum = 0;
  for (int64_t k = part * row_sums_part + threadIdx.x; k < last; k += blockDim.x) sum += widen(x[row * columns + k]);
  sum = row_sums_of_block(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// A block for each row.
template <class T>
__global__ void row_sums_second(const float* sums, int64_t parts, T* y) {
  float sum = 0;
  for (int64_t k = threadIdx.x; k < parts; k += blockDim.x) sum += sums[blockIdx.x * parts + k];
  sum = row_sums_of_block(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = narrow<T>(sum);
}
}  // namespace detail

template <class T>
size_t row_sums_workspace(In<T> x, Out<T>) {
  return size_t(x.size(0) * detail::row_sums_parts(x.size(1))) * sizeof(float);
}

template <class T>
cudaError_t row_sums(Stream stream, In<T> x, Out<T> y) {
  const int64_t rows = x.size(0), parts = detail::row_sums_parts(x.size(1));
  if (rows == 0) return cudaSuccess;
  require(reinterpret_cast<uintptr_t>(stream.workspace) % 256 == 0, "the workspace is not aligned");
  float* const sums = static_cast<float*>(stream.workspace);
  const cudaError_t error = launch(detail::row_sums_first<T>, unsigned(rows * parts), detail::row_sums_threads, 0, stream,
                                   x.data, x.size(1), parts, sums);
  if (error != cudaSuccess) return error;
  return launch(detail::row_sums_second<T>, unsigned(rows), detail::row_sums_threads, 0, stream, sums, parts, y.data);
}

}  // namespace deployops
