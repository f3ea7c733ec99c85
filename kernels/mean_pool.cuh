// mean_pool: the global average of each channel. A group of threads for each (see deployops/cuda/rows.h), every element
// read once. One long row alone does not fill a GPU: it is one block's.
#pragma once

#include "deployops/cuda/math.h"
#include "deployops/cuda/rows.h"

namespace deployops {

constexpr int mean_pool_tactics = row_tactics;

namespace detail {

template <class T, int N>
__global__ void __launch_bounds__(most_row_threads<T, N>, 1)
    mean_pool_kernel(const T* x, int64_t rows, int64_t n, T* y) {
  using W = wide_t<T>;
  RowPart<T, N> part;
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    part.begin_row(x + row * n, n);
    W sum = 0;
    for (int64_t begin = 0; begin < n; begin += part.step()) {
      part.read(x + row * n, begin);
      W some = 0;  // few at a time: the error of a sum grows with the number of its terms
      part.each(begin, [&](int64_t, auto& v) {
#pragma unroll
        for (int k = 0; k < length_of<decltype(v)>; ++k) some += v[k];
      });
      sum += some;
    }
    sum = group_sum(sum);
    if (threadIdx.x == 0) y[row] = narrow<T>(sum / W(n));  // the mean of nothing is 0/0
  }
}

}  // namespace detail

template <class T>
cudaError_t mean_pool(Stream stream, In<T> x, Out<T> y) {
  require(x.rank == 4 || x.rank == 2, "x has ", x.rank,
          " dimensions; expected 4, (N, C, H, W) to average over H and W, or 2, (N, L) to average over L");
  const int64_t rows = x.numel(0, x.rank / 2), n = x.numel(x.rank / 2, x.rank);
  if (rows == 0) return cudaSuccess;
  const RowLaunch how = row_launch<T>(rows, n, true, stream.tactic);
  return launch(detail::mean_pool_kernel<T, full_pack<T>>, how.grid, how.block, 0, stream, x.data, rows, n, y.data);
}

}  // namespace deployops
