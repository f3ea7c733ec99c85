// The inner loop of a matrix product with rows in the lanes: a vector holds one number of each of several rows.
#pragma once

#include "deployops/simd.h"

namespace deployops {

namespace detail {

// Columns of the result that are done at once: with two vectors of rows, their sums fill the registers.
#if defined(DEPLOYOPS_AVX512) || defined(__aarch64__)
constexpr int product_columns = 8;  // 16 sums of 32 registers: enough to hide the latency of fma
#else
constexpr int product_columns = 6;  // 12 sums of 16 registers
#endif

template <int N, int Q, class W, class F>
DEPLOYOPS_INLINE void product_columns_at(int64_t column, const W* a, int64_t depth, const W* b, int64_t b_column,
                                         int64_t b_depth, F& store_at) {
  constexpr int L = lanes<W>;
  vec<W> sums[N][Q] = {};
  b += column * b_column;
  for (int64_t d = 0; d < depth; ++d, a += Q * L, b += b_depth) {
    vec<W> rows[Q];
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) rows[q] = load(a + q * L);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const vec<W> factor = broadcast(b[n * b_column]);
#pragma GCC unroll 4
      for (int q = 0; q < Q; ++q) sums[n][q] = fma(rows[q], factor, sums[n][q]);
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) store_at(column + n, q, sums[n][q]);
  }
}

template <int N, int Q, class W, class F>
DEPLOYOPS_INLINE void product_from(int64_t column, int64_t columns, const W* a, int64_t depth, const W* b,
                                   int64_t b_column, int64_t b_depth, F& store_at) {
  for (; column + N <= columns; column += N) {
    product_columns_at<N, Q>(column, a, depth, b, b_column, b_depth, store_at);
  }
  if constexpr (N > 1) product_from<N / 2, Q>(column, columns, a, depth, b, b_column, b_depth, store_at);
}

}  // namespace detail

// c[n][r] = Σ_d a[d][r]·b[n, d] for `columns` n and Q vectors of rows r; b[n, d] is at b + n·b_column + d·b_depth.
// store_at(n, q, v) gets the q-th vector of c[n].
template <int Q, class W, class F>
DEPLOYOPS_INLINE void block_product(int64_t columns, const W* a, int64_t depth, const W* b, int64_t b_column,
                                    int64_t b_depth, F&& store_at) {
  detail::product_from<detail::product_columns, Q>(int64_t(0), columns, a, depth, b, b_column, b_depth, store_at);
}

}  // namespace deployops
