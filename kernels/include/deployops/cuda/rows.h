// Operators that work on rows: a group of threads holds a row in its registers, so that it is read from memory once.
// A row too long for that is read again, from the L2 cache as a rule.
//
// Launch: blocks of (threads per row, rows at once): a warp per row and four of them, or a whole block per row.
// Memory: each row is read once and written once; a weight is read for each row, from the caches.
#pragma once

#include "deployops/cuda/launch.h"
#include "deployops/cuda/pack.h"
#include "deployops/cuda/reduce.h"

namespace deployops {

constexpr int row_tactics = 6;   // threads per row; 0: by its length
constexpr int rows_at_once = 4;  // where a warp does a row

// The most threads of a block: with doubles, or many addresses, each needs more registers than a 1024th of them.
template <class T, int N> constexpr int most_row_threads = sizeof(wide_t<T>) == 8 || N == 1 ? 512 : 1024;

// The numbers of a row that a thread holds at once, in packs of N. Pack p begins at begin + (p·threads + thread)·N.
template <class T, int N>
struct RowPart {
  using W = wide_t<T>;
  static constexpr int count = (N == 1 ? 24 : 64) / int(sizeof(W)), packs = count / N;

  W numbers[packs][N];

  __device__ static int64_t step() { return int64_t(blockDim.x) * count; }

  // f(place in the row, numbers[N]) for each pack that lies in the row: a row is a whole number of packs.
  template <class F>
  __device__ void each(int64_t begin, int64_t n, F f) {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const int64_t i = begin + (int64_t(p) * blockDim.x + threadIdx.x) * N;
      if (i < n) f(i, numbers[p]);
    }
  }
  __device__ void read(const T* row, int64_t begin, int64_t n) {
    each(begin, n, [row](int64_t i, W(&v)[N]) { read_pack<N>(row + i, v); });
  }
  // The same, where the row is longer than what its threads hold: they hold another part by now.
  __device__ void read_again(const T* row, int64_t begin, int64_t n) {
    if (n > step()) read(row, begin, n);
  }
};

struct RowLaunch {
  dim3 grid, block;
};

template <class T>
RowLaunch row_launch(int64_t rows, int64_t n, bool packs, int tactic) {
  constexpr unsigned choices[row_tactics] = {0, 32, 128, 256, 512, 1024};
  const int64_t held = packs ? RowPart<T, full_pack<T>>::count : RowPart<T, 1>::count;
  const unsigned most = packs ? most_row_threads<T, full_pack<T>> : most_row_threads<T, 1>;
  unsigned threads = choices[tactic];
  if (threads == 0) {
    threads = n <= 32 * held ? 32 : 128;  // no more than hold the row
    while (threads < most && n > threads * held) threads *= 2;
  }
  if (threads > most) threads = most;
  if (threads == 32) return {dim3(blocks_for(rows, rows_at_once)), dim3(32, rows_at_once)};
  return {dim3(blocks_for(rows, 1)), dim3(threads)};
}

// The rows of a group: first_row(), and from there on in steps.
__device__ inline int64_t first_row() { return int64_t(blockIdx.x) * blockDim.y + threadIdx.y; }
__device__ inline int64_t row_step() { return int64_t(gridDim.x) * blockDim.y; }

// A weight or a bias at some places of a row; `otherwise` where there is none.
template <int N, class T>
__device__ inline void read_or(const T* row, int64_t i, wide_t<T> otherwise, wide_t<T> (&to)[N]) {
  if (row != nullptr) {
    read_pack<N>(row + i, to);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) to[k] = otherwise;
  }
}

}  // namespace deployops
