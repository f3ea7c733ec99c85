// rms_norm over the last dimension: see deployops/cuda/rows.h for the launch and the bytes moved.
#pragma once

#include "deployops/cuda/check_rows.h"
#include "deployops/cuda/math.h"
#include "deployops/cuda/rows.h"

namespace deployops {

constexpr int rms_norm_tactics = row_tactics;

namespace detail {

// 1/√(mean(x²) + eps) of a row. `read(part, begin)` reads its parts; `part` holds the row if it is short enough.
template <class T, int N, class F>
__device__ inline wide_t<T> inverse_rms(RowPart<T, N>& part, int64_t n, wide_t<T> eps, F read) {
  using W = wide_t<T>;
  W squares = 0;
  for (int64_t begin = 0; begin < n; begin += part.step()) {
    read(part, begin);
    part.each(begin, [&](int64_t, auto& v) {
#pragma unroll
      for (int k = 0; k < length_of<decltype(v)>; ++k) squares = fma_of(v[k], v[k], squares);
    });
  }
  return 1 / sqrt_of(group_sum(squares) / W(n) + eps);
}

// y = x·r·weight, for the row that `part` holds, or has held the parts of.
template <class T, int N>
__device__ inline void scale_row(RowPart<T, N>& part, const T* x, int64_t n, wide_t<T> r, const T* weight, T* y) {
  using W = wide_t<T>;
  for (int64_t begin = 0; begin < n; begin += part.step()) {
    part.read_again(x, begin);
    part.each(begin, [&](int64_t i, auto& v) {
      constexpr int count = length_of<decltype(v)>;
      W result[count];
      with_weights<count>(weight, static_cast<const T*>(nullptr), i, [&](int k, W w, W) { result[k] = v[k] * r * w; });
      write_pack<count>(y + i, result);
    });
  }
}

template <class T, int N>
__global__ void __launch_bounds__(most_row_threads<T, N>, 1)
    rms_norm_kernel(const T* x, const T* weight, int64_t rows, int64_t n, wide_t<T> eps, T* y) {
  RowPart<T, N> part;
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* from = x + row * n;
    part.begin_row(from, n);
    const wide_t<T> r = inverse_rms(part, n, eps, [=](RowPart<T, N>& p, int64_t begin) { p.read(from, begin); });
    scale_row(part, from, n, r, weight, y + row * n);
  }
}

}  // namespace detail

template <class T>
cudaError_t rms_norm(Stream stream, In<T> x, In<T> weight, double eps, Out<T> y) {
  check_row_vector("weight", untyped(weight), untyped(x));
  const int64_t n = x.size(-1), rows = x.numel(0, x.rank - 1);
  if (n == 0 || rows == 0) return cudaSuccess;
  const bool packs = alike_for_packs(x.data, y.data);
  const RowLaunch how = row_launch<T>(rows, n, packs, stream.tactic);
  return launch(packs ? detail::rms_norm_kernel<T, full_pack<T>> : detail::rms_norm_kernel<T, 1>, how.grid, how.block, 0,
                stream, x.data, weight.data, rows, n, wide_t<T>(eps), y.data);
}

}  // namespace deployops
