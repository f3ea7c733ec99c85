// layer_norm over the last dimension, accurate where the mean is large beside the deviations: see deployops/cuda/rows.h
// for the launch and the bytes moved.
#pragma once

#include "deployops/cuda/check_rows.h"
#include "deployops/cuda/math.h"
#include "deployops/cuda/rows.h"

namespace deployops {

constexpr int layer_norm_tactics = row_tactics;

namespace detail {

// The mean of f(x) over a row, of which `part` holds as much as it can. `read(begin)` reads its parts.
template <class T, int N, class Read, class F>
__device__ inline wide_t<T> mean_over_row(RowPart<T, N>& part, int64_t n, Read read, F f) {
  using W = wide_t<T>;
  W sum = 0;
  for (int64_t begin = 0; begin < n; begin += part.step()) {
    read(begin);
    part.each(begin, [&](int64_t, auto& v) {
#pragma unroll
      for (int k = 0; k < length_of<decltype(v)>; ++k) sum += f(v[k]);
    });
  }
  return group_sum(sum) / W(n);
}

template <class T, int N>
__global__ void __launch_bounds__(most_row_threads<T, N>, 1)
    layer_norm_kernel(const T* x, const T* weight, const T* bias, int64_t rows, int64_t n, wide_t<T> eps, T* y) {
  using W = wide_t<T>;
  RowPart<T, N> part;
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* from = x + row * n;
    T* to = y + row * n;
    part.begin_row(from, n);
    const auto read = [&](int64_t begin) { part.read(from, begin); };
    const auto read_again = [&](int64_t begin) { part.read_again(from, begin); };
    const W mean = mean_over_row(part, n, read, [](W v) { return v; });
    // The mean is rounded, which may be a large error beside the deviations: it is what they have left as their mean.
    const W left = mean_over_row(part, n, read_again, [mean](W v) { return v - mean; });
    const W variance = mean_over_row(part, n, read_again, [mean, left](W v) {
      const W d = v - mean - left;
      return d * d;
    });
    const W r = 1 / sqrt_of(variance + eps);
    for (int64_t begin = 0; begin < n; begin += part.step()) {
      part.read_again(from, begin);
      part.each(begin, [&](int64_t i, auto& v) {
        constexpr int count = length_of<decltype(v)>;
        W result[count];
        with_weights<count>(weight, bias, i, [&](int k, W w, W b) { result[k] = fma_of((v[k] - mean - left) * r, w, b); });
        write_pack<count>(to + i, result);
      });
    }
  }
}

}  // namespace detail

template <class T>
cudaError_t layer_norm(Stream stream, In<T> x, In<T> weight, In<T> bias, double eps, Out<T> y) {
  check_row_vector("weight", untyped(weight), untyped(x));
  check_row_vector("bias", untyped(bias), untyped(x));
  const int64_t n = x.size(-1), rows = x.numel(0, x.rank - 1);
  if (n == 0 || rows == 0) return cudaSuccess;
  const bool packs = alike_for_packs(x.data, y.data);
  const RowLaunch how = row_launch<T>(rows, n, packs, stream.tactic);
  return launch(packs ? detail::layer_norm_kernel<T, full_pack<T>> : detail::layer_norm_kernel<T, 1>, how.grid,
                how.block, 0, stream, x.data, weight.data, bias.data, rows, n, wide_t<T>(eps), y.data);
}

}  // namespace deployops
