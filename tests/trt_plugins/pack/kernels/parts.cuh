#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {
template <class T>
__global__ void parts_kernel(const T* x, int64_t rows, int64_t columns, T* left, T* right) {
  const int64_t half = columns / 2, i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= rows * columns) return;
  const int64_t row = i / columns, column = i % columns;
  if (column < half) {
    left[row * half + column] = x[i];
  } else {
    right[(column - half) * rows + row] = x[i];
  }
}
}  // namespace detail

template <class T>
cudaError_t parts(Stream stream, In<T> x, Out<T> left, Out<T> right) {
  const int64_t rows = x.size(0), columns = x.size(1);
  if (rows * columns == 0) return cudaSuccess;
  return launch(detail::parts_kernel<T>, unsigned((rows * columns + 127) / 128), 128, 0, stream, x.data, rows, columns,
                left.data, right.data);
}

}  // namespace deployops
