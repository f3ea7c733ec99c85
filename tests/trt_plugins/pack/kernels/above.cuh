#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {

// One thread finds how many there are and where they begin; row and column lie K numbers apart, with the real K.
template <class T>
__global__ void above_kernel(const T* x, const T* limit, int64_t rows, int64_t columns, int32_t* at, T* values,
                             int32_t* rest, int32_t* found, int32_t* without) {
  int32_t count = 0, none = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t before = count;
    for (int64_t c = 0; c < columns; ++c) {
      if (widen(x[r * columns + c]) > widen(limit[r])) values[count++] = x[r * columns + c];
    }
    if (count == before) rest[none++] = int32_t(r);
  }
  int32_t k = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      if (!(widen(x[r * columns + c]) > widen(limit[r]))) continue;
      at[k] = int32_t(r);
      at[count + k++] = int32_t(c);
    }
  }
  *found = count;
  *without = none;
}

}  // namespace detail

template <class T>
cudaError_t above(Stream stream, In<T> x, In<T> limit, int64_t, Out<int32_t> rows, Out<T> values, Out<int32_t> rest,
                  Out<int32_t> size0, Out<int32_t> size1) {
  return launch(detail::above_kernel<T>, 1, 1, 0, stream, x.data, limit.data, x.size(0), x.size(1), rows.data,
                values.data, rest.data, size0.data, size1.data);
}

}  // namespace deployops
