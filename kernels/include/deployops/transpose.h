// Transposition of a square of numbers in registers, and sums across the lanes of several vectors.
#pragma once

#include <algorithm>
#include <utility>

#include "deployops/simd.h"

namespace deployops {

namespace detail {

// a₀ b₀ a₁ b₁ … of the lower halves (Half = 0) or the upper ones (1).
template <int Half, class V, size_t... k>
DEPLOYOPS_INLINE V interleave(V a, V b, std::index_sequence<k...>) {
  constexpr size_t n = sizeof...(k), first = Half * n / 2;
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (first + k / 2 + k % 2 * n)...);
#else
  using I = vec<int_of<element_t<V>>>;
  return __builtin_shuffle(a, b, I{int_of<element_t<V>>(first + k / 2 + k % 2 * n)...});
#endif
}

// The lanes of the result are the sums of v[0], v[1], …; a step adds the halves of two vectors and interleaves them.
template <size_t N, class V>
DEPLOYOPS_INLINE V fold_in_pairs(V* v) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    constexpr std::make_index_sequence<sizeof(V) / sizeof(v[0][0])> each{};
#pragma GCC unroll 8
    for (size_t i = 0; i < N / 2; ++i) {
      v[i] = interleave<0>(v[i], v[i + N / 2], each) + interleave<1>(v[i], v[i + N / 2], each);
    }
    return fold_in_pairs<N / 2>(v);
  }
}

}  // namespace detail

// v[i][j] becomes v[j][i]: log₂ of the lanes steps, each of which interleaves the first half of the vectors with
// the second.
template <class V, size_t N>
DEPLOYOPS_INLINE void transpose(V (&v)[N]) {
  static_assert(sizeof(V) == N * sizeof(v[0][0]));
  constexpr std::make_index_sequence<N> each{};
  V next[N];
#pragma GCC unroll 4
  for (size_t done = 1; done < N; done *= 2) {
#pragma GCC unroll 8
    for (size_t i = 0; i < N / 2; ++i) {
      next[2 * i] = detail::interleave<0>(v[i], v[i + N / 2], each);
      next[2 * i + 1] = detail::interleave<1>(v[i], v[i + N / 2], each);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < N; ++i) v[i] = next[i];
  }
}

// Lane i is the sum of v[i]. v is overwritten.
template <class V, size_t N>
DEPLOYOPS_INLINE V sums_of_each(V (&v)[N]) {
  static_assert(sizeof(V) == N * sizeof(v[0][0]));
  return detail::fold_in_pairs<N>(&v[0]);
}

// to[c·to_step + r] = from[r][c] for up to a vector of rows r and any number of columns c; `stored` of the lanes
// r are written, those from `rows` on with 0.
template <class W>
__attribute__((noinline))
void transpose_rows(const W* const* from, int rows, int64_t columns, W* to, int64_t to_step, int stored) {
  constexpr int L = lanes<W>;
  for (int64_t c = 0; c < columns; c += L) {
    const int there = int(std::min<int64_t>(L, columns - c));
    vec<W> v[L] = {};
    for (int r = 0; r < rows; ++r) v[r] = there == L ? load(from[r] + c) : load(from[r] + c, there);
    transpose(v);
    for (int k = 0; k < there; ++k, to += to_step) {
      if (stored == L) {
        store<W>(to, v[k]);
      } else {
        store<W>(to, v[k], stored);
      }
    }
  }
}

}  // namespace deployops
