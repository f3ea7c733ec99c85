// softmax along one dimension, the maximum subtracted first.
//
// Along the last one: see deployops/cuda/rows.h; a row too long for the registers is gone through once for maximum and
// sum together (online softmax: Milakov and Gimelshein 2018, arXiv:1805.02867) and once to write. Along another one:
// blocks of 32 columns and several lines at once, by packs of neighbouring columns where they are aligned; each column is
// read twice, the second time from the caches.
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
  __device__ void merge(ExpSum other) {
    raise(other.maximum);
    other.raise(maximum);
    sum += other.sum;
  }
};

template <class T, int N>
__global__ void __launch_bounds__(most_row_threads<T, N>, 1)
    softmax_rows_kernel(const T* x, int64_t rows, int64_t n, T* y) {
  using W = wide_t<T>;
  RowPart<T, N> part;
  const bool held = n <= part.step();
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    const T* from = x + row * n;
    part.begin_row(from, n);
    ExpSum<W> mine;
    for (int64_t begin = 0; begin < n; begin += part.step()) {
      part.read(from, begin);
      W m = mine.maximum;
      part.each(begin, [&](int64_t, auto& v) {
#pragma unroll
        for (int k = 0; k < length_of<decltype(v)>; ++k) m = Larger()(m, v[k]);
      });
      if (held) m = group_max(m);
      mine.raise(m);
      part.each(begin, [&](int64_t, auto& v) {
#pragma unroll
        for (int k = 0; k < length_of<decltype(v)>; ++k) mine.add(v[k]);
      });
    }
    if (!held) mine.raise(group_max(mine.maximum));
    const W r = 1 / group_sum(mine.sum), m = mine.maximum;
    for (int64_t begin = 0; begin < n; begin += part.step()) {
      part.read_again(from, begin);
      part.each(begin, [&](int64_t i, auto& v) {
        constexpr int count = length_of<decltype(v)>;
        W result[count];
#pragma unroll
        for (int k = 0; k < count; ++k) result[k] = exp_of(v[k] - m) * r;
        write_pack<count>(y + row * n + i, result);
      });
    }
  }
}

constexpr int softmax_columns_at_once = 32;

// Blocks of (32 threads, warps). A thread has a pack of N neighbouring columns in each of its lines, a warp 32 columns in
// N lines at once. `tiles` blocks of columns lie side by side.
template <class T, int N>
__global__ void __launch_bounds__(most_row_threads<T, 2>, 1)
    softmax_columns_kernel(const T* x, int64_t outer, int64_t n, int64_t inner, int64_t tiles, T* y) {
  using W = wide_t<T>;
  constexpr int columns = softmax_columns_at_once, packs = columns / N;
  __shared__ W maxima[32][columns], sums[32][columns];
  const int lane = int(threadIdx.x), warp = int(threadIdx.y), warps = int(blockDim.y);
  const int column = lane % packs * N, line = warp * N + lane / packs, lines = warps * N;
  for (int64_t tile = blockIdx.x; tile < outer * tiles; tile += gridDim.x) {
    const int64_t j = tile % tiles * columns + column, at = tile / tiles * n * inner + j;
    const bool there = j < inner;  // the whole pack: `inner` is a whole number of them
    ExpSum<W> mine[N];
    for (int64_t i = line; there && i < n; i += lines) {
      W v[N];
      read_pack<N>(x + at + i * inner, v);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (!(v[k] <= mine[k].maximum)) mine[k].raise(v[k]);  // NaN too, which changes no maximum
        mine[k].add(v[k]);
      }
    }
    // Over the lines of a warp, then over the warps.
#pragma unroll
    for (int step = packs; step < lanes_per_warp; step *= 2) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        mine[k].merge({__shfl_xor_sync(all_lanes, mine[k].maximum, step), __shfl_xor_sync(all_lanes, mine[k].sum, step)});
      }
    }
    __syncthreads();  // those who still read the last tile's
    if (lane < packs) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        maxima[warp][column + k] = mine[k].maximum;
        sums[warp][column + k] = mine[k].sum;
      }
    }
    __syncthreads();
    if (warp == 0) {
      ExpSum<W> all{maxima[0][lane], sums[0][lane]};
      for (int k = 1; k < warps; ++k) all.merge({maxima[k][lane], sums[k][lane]});
      maxima[0][lane] = all.maximum;
      sums[0][lane] = 1 / all.sum;
    }
    __syncthreads();
    W m[N], r[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      m[k] = maxima[0][column + k];
      r[k] = sums[0][column + k];
    }
    for (int64_t i = line; there && i < n; i += lines) {
      W v[N];
      read_pack<N>(x + at + i * inner, v);
#pragma unroll
      for (int k = 0; k < N; ++k) v[k] = exp_of(v[k] - m[k]) * r[k];
      write_pack<N>(y + at + i * inner, v);
    }
  }
}

// The warps of a block: a tactic's, or as many as leave each thread a few lines.
template <class T, int N>
unsigned softmax_warps(int64_t n, int tactic) {
  constexpr unsigned choices[softmax_tactics] = {0, 1, 4, 8, 16, 32}, most = most_row_threads<T, 2> / lanes_per_warp;
  if (tactic > 0) return choices[tactic] < most ? choices[tactic] : most;
  if (N == 1) return n >= 64 ? 16 : 8;
  unsigned warps = 1;
  while (warps < 16 && int64_t(warps) * N * 4 < n) warps *= 2;
  return warps;
}

template <class T, int N>
cudaError_t launch_softmax_columns(Stream stream, const T* x, int64_t outer, int64_t n, int64_t inner, T* y) {
  const int64_t tiles = (inner + softmax_columns_at_once - 1) / softmax_columns_at_once;
  return launch(softmax_columns_kernel<T, N>, blocks_for(outer * tiles, 1),
                dim3(lanes_per_warp, softmax_warps<T, N>(n, stream.tactic)), 0, stream, x, outer, n, inner, tiles, y);
}

}  // namespace detail

template <class T>
cudaError_t softmax(Stream stream, In<T> x, int64_t dim, Out<T> y) {
  require(-x.rank <= dim && dim < x.rank, "dim = ", dim, ", but x has ", x.rank, " dimensions");
  const int d = int(dim < 0 ? dim + x.rank : dim);
  const int64_t n = x.size(d), outer = x.numel(0, d), inner = x.numel(d + 1, x.rank);
  if (x.numel() == 0) return cudaSuccess;
  if (inner == 1) {
    const bool packs = alike_for_packs(x.data, y.data);
    const RowLaunch how = row_launch<T>(outer, n, packs, stream.tactic);
    return launch(packs ? detail::softmax_rows_kernel<T, full_pack<T>> : detail::softmax_rows_kernel<T, 1>, how.grid,
                  how.block, 0, stream, x.data, outer, n, y.data);
  }
  constexpr int N = full_pack<T>;
  return inner % N == 0 && aligned_for_packs(x.data, y.data)
             ? detail::launch_softmax_columns<T, N>(stream, x.data, outer, n, inner, y.data)
             : detail::launch_softmax_columns<T, 1>(stream, x.data, outer, n, inner, y.data);
}

}  // namespace deployops
