// softmax along one dimension, the maximum subtracted first.
//
// Along the last one: see deployops/cuda/rows.h; a row too long for the registers is gone through once for maximum and
// sum together (online softmax: Milakov and Gimelshein 2018, arXiv:1805.02867) and once to write. Along another one:
// blocks of 32 columns and several lines at once; each column is read twice, the second time from the caches.
//
// A NaN is left out of the maximum: it makes its own exp NaN, then the sum, then the row. +∞ does so by ∞ − ∞, and so
// does −∞ where there is nothing else.
#pragma once

#include "deployops/cuda/math.h"
#include "deployops/cuda/rows.h"
#include "deployops/untyped.h"

namespace deployops {

constexpr int softmax_tactics = row_tactics;

namespace detail {

// Σ exp(x − maximum) of what has been seen.
template <class W>
struct ExpSum {
  W maximum = -infinity<W>(), sum = 0;

  // What is subtracted while more may come: −∞ − −∞ would be NaN.
  __device__ static W subtrahend(W m) { return m == -infinity<W>() ? W(0) : m; }

  // For a larger maximum.
  __device__ void raise(W m) {
    m = Larger()(maximum, m);
    sum *= exp_of(maximum - subtrahend(m));
    maximum = m;
  }
  __device__ void add(W x) { sum += exp_of(x - subtrahend(maximum)); }
};

template <class T, int N>
__global__ void __launch_bounds__(most_row_threads<T, N>, 1)
    softmax_rows_kernel(const T* x, int64_t rows, int64_t n, T* y) {
  using W = wide_t<T>;
  RowPart<T, N> part;
  const bool held = n <= part.step();
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* from = x + row * n;
    ExpSum<W> mine;
    for (int64_t begin = 0; begin < n; begin += part.step()) {
      part.read(from, begin, n);
      W m = mine.maximum;
      part.each(begin, n, [&](int64_t, W(&v)[N]) {
#pragma unroll
        for (int k = 0; k < N; ++k) m = Larger()(m, v[k]);
      });
      if (held) m = group_max(m);
      mine.raise(m);
      part.each(begin, n, [&](int64_t, W(&v)[N]) {
#pragma unroll
        for (int k = 0; k < N; ++k) mine.add(v[k]);
      });
    }
    if (!held) mine.raise(group_max(mine.maximum));
    const W r = 1 / group_sum(mine.sum), m = mine.maximum;
    for (int64_t begin = 0; begin < n; begin += part.step()) {
      part.read_again(from, begin, n);
      part.each(begin, n, [&](int64_t i, W(&v)[N]) {
        W result[N];
#pragma unroll
        for (int k = 0; k < N; ++k) result[k] = exp_of(v[k] - m) * r;
        write_pack<N>(y + row * n + i, result);
      });
    }
  }
}

constexpr int softmax_columns_at_once = 32;

// Blocks of (32 columns, lines at once). `tiles` blocks of columns lie side by side.
template <class T>
__global__ void __launch_bounds__(1024) softmax_columns_kernel(const T* x, int64_t outer, int64_t n, int64_t inner,
                                                               int64_t tiles, T* y) {
  using W = wide_t<T>;
  __shared__ W maxima[32][softmax_columns_at_once], sums[32][softmax_columns_at_once];
  const int column = int(threadIdx.x), line = int(threadIdx.y), lines = int(blockDim.y);
  for (int64_t tile = blockIdx.x; tile < outer * tiles; tile += gridDim.x) {
    const int64_t j = tile % tiles * softmax_columns_at_once + column, at = tile / tiles * n * inner + j;
    const bool there = j < inner;
    ExpSum<W> mine;
    for (int64_t i = line; there && i < n; i += lines) {
      const W v = widen(x[at + i * inner]);
      if (!(v <= mine.maximum)) mine.raise(v);  // NaN too, which changes no maximum
      mine.add(v);
    }
    __syncthreads();  // those who still read the last tile's
    maxima[line][column] = mine.maximum;
    sums[line][column] = mine.sum;
    __syncthreads();
    W m = -infinity<W>(), sum = 0;
    for (int k = 0; k < lines; ++k) m = Larger()(m, maxima[k][column]);
    for (int k = 0; k < lines; ++k) {
      ExpSum<W> other{maxima[k][column], sums[k][column]};
      other.raise(m);
      sum += other.sum;
    }
    const W r = 1 / sum;
    for (int64_t i = line; there && i < n; i += lines) {
      y[at + i * inner] = narrow<T>(exp_of(widen(x[at + i * inner]) - m) * r);
    }
  }
}

}  // namespace detail

template <class T>
cudaError_t softmax(Stream stream, In<T> x, int64_t dim, Out<T> y) {
  require(-x.rank <= dim && dim < x.rank, "dim = ", dim, ", but x has ", x.rank, " dimensions");
  const int d = int(dim < 0 ? dim + x.rank : dim);
  const int64_t n = x.size(d), outer = x.numel(0, d), inner = x.numel(d + 1, x.rank);
  if (x.numel() == 0) return cudaSuccess;
  if (inner == 1) {
    const bool packs = n % full_pack<T> == 0 && aligned_for_packs(x.data, y.data);
    const RowLaunch how = row_launch<T>(outer, n, packs, stream.tactic);
    return launch(packs ? detail::softmax_rows_kernel<T, full_pack<T>> : detail::softmax_rows_kernel<T, 1>, how.grid,
                  how.block, 0, stream, x.data, outer, n, y.data);
  }
  constexpr unsigned choices[softmax_tactics] = {0, 1, 4, 8, 16, 32};
  unsigned lines = choices[stream.tactic];
  if (lines == 0) lines = n >= 64 ? 16 : 8;
  const int64_t tiles = (inner + detail::softmax_columns_at_once - 1) / detail::softmax_columns_at_once;
  return launch(detail::softmax_columns_kernel<T>, blocks_for(outer * tiles, 1),
                dim3(detail::softmax_columns_at_once, lines), 0, stream, x.data, outer, n, inner, tiles, y.data);
}

}  // namespace deployops
