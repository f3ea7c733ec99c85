// Operators that work on rows: a group of threads holds a row in its registers, so that it is read from memory once.
// A row too long for that is read again, from the L2 cache as a rule.
//
// A row is a head up to a 16-byte boundary, 16-byte packs, and a tail: with any length, and wherever it begins. Only
// tensors of rows that lie differently to those boundaries are gone over number by number.
//
// Launch: blocks of (threads per row, rows at once): a warp per row and four of them, or a whole block per row.
// Memory: each row is read once and written once; a weight is read for each row, from the caches.
#pragma once

#include <type_traits>

#include "deployops/cuda/launch.h"
#include "deployops/cuda/pack.h"
#include "deployops/cuda/reduce.h"

namespace deployops {

constexpr int row_tactics = 6;   // threads per row; 0: by its length
constexpr int rows_at_once = 4;  // where a warp does a row

// The most threads of a block: with doubles, or many addresses, each needs more registers than a 1024th of them.
template <class T, int N> constexpr int most_row_threads = sizeof(wide_t<T>) == 8 || N == 1 ? 512 : 1024;

// How many numbers there are in an array, for a lambda that takes both packs and single numbers.
template <class Array> constexpr int length_of = int(std::extent_v<std::remove_reference_t<Array>>);

// The numbers of a row that a thread holds at once, in packs of N. Pack p begins begin + (p·threads + thread)·N behind
// the head. What head and tail hold, fewer than 2·N numbers, is spread over the first threads, one for each; it belongs
// to the part that begins at 0, and stays where it is while the thread holds other parts.
template <class T, int N>
struct RowPart {
  using W = wide_t<T>;
  static constexpr int count = (N == 1 ? 24 : 64) / int(sizeof(W)), packs = count / N;

  W numbers[packs][N];
  W edge[1];
  int64_t length;    // of the row
  int64_t in_packs;  // numbers between head and tail
  int head;

  __device__ static int64_t step() { return int64_t(blockDim.x) * count; }

  // Before a row is read: it lies at `row`, or at an address alike.
  __device__ void begin_row(const T* row, int64_t n) {
    length = n;
    if constexpr (N == 1) {
      head = 0;
      in_packs = n;
    } else {
      head = int((16 - past_pack_boundary(row)) % 16 / sizeof(T));
      if (head > n) head = int(n);
      in_packs = (n - head) / N * N;
    }
  }

  // f(place in the row, numbers) for what this thread has of a part: packs, arrays of N, and perhaps an array of 1.
  template <class F>
  __device__ void each(int64_t begin, F f) {
    each_pack(begin, f);
    if constexpr (N > 1) {
      if (begin == 0 && threadIdx.x < unsigned(length - in_packs)) {
        f(int64_t(threadIdx.x) + (int(threadIdx.x) < head ? 0 : in_packs), edge);
      }
    }
  }
  __device__ void read(const T* row, int64_t begin) { each(begin, reader(row)); }
  // The same, where the row is longer than what its threads hold: they hold another part by now.
  __device__ void read_again(const T* row, int64_t begin) {
    if (length > step()) each_pack(begin, reader(row));
  }

 private:
  template <class F>
  __device__ void each_pack(int64_t begin, F f) {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const int64_t i = begin + (int64_t(p) * blockDim.x + threadIdx.x) * N;
      if (i < in_packs) f(head + i, numbers[p]);
    }
  }
  __device__ static auto reader(const T* row) {
    return [row](int64_t i, auto& v) { read_pack<length_of<decltype(v)>>(row + i, v); };
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

// f(k, weight, bias) for the N places from i on, 1 where there is no weight, 0 where there is no bias. Both may
// lie differently than the row does.
template <int N, class T, class F>
__device__ inline void with_weights(const T* weight, const T* bias, int64_t i, F f) {
  using W = wide_t<T>;
  const bool packs = N == 1 || ((weight == nullptr || past_pack_boundary(weight + i) == 0) &&
                                (bias == nullptr || past_pack_boundary(bias + i) == 0));
  if (packs) {
    W w[N], b[N];
    read_or<N>(weight, i, W(1), w);
    read_or<N>(bias, i, W(0), b);
#pragma unroll
    for (int k = 0; k < N; ++k) f(k, w[k], b[k]);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      f(k, weight != nullptr ? widen(weight[i + k]) : W(1), bias != nullptr ? widen(bias[i + k]) : W(0));
    }
  }
}

}  // namespace deployops
