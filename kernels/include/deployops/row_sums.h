// Sums over a row that stay within a few ULP, however long it is.
#pragma once

#include <array>

#include "deployops/rows.h"

namespace deployops {

template <class V>
DEPLOYOPS_INLINE element_t<V> sum_of_lanes(V v) {
  return fold(v, [](auto a, auto b) { return a + b; });
}

template <class W>
constexpr bool is_finite(W value) {
  return value - value == 0;
}

// A sum of many partial sums, which costs no accuracy however many they are: float is added up in double, double
// with the rounding errors kept (Knuth's TwoSum).
template <class W>
class Total {
 public:
  void add(W part) {
    if constexpr (sizeof(W) == 8) {
      const W sum = high_ + part, taken = sum - high_;
      low_ += (high_ - (sum - taken)) + (part - taken);
      high_ = sum;
    } else {
      high_ += part;
    }
  }
  // Rounded to W: a sum beyond the largest float is infinite, as if it had been added up in float.
  W value() const { return W(is_finite(low_) ? high_ + low_ : high_); }

 private:
  double high_ = 0, low_ = 0;
};

namespace detail {

// Vectors added up one after the other, and such sums, before the sum goes to a `Total`. Equal numbers all round the
// same way, so that a long row of additions has an error that grows with its length.
constexpr int vectors_per_sum = 16;
constexpr int vectors_per_part = vectors_per_sum * 16;

template <class W, int K>
using Vectors = std::array<vec<W>, K>;

// Where the part of a row of n that starts at `begin` ends: what is left over joins the last part, so that each has at
// least one vector.
template <class W>
DEPLOYOPS_INLINE int64_t end_of_part(int64_t begin, int64_t n) {
  constexpr int64_t part = int64_t(vectors_per_part) * lanes<W>;
  return n - begin < 2 * part ? n : begin + part;
}

// The sums over elements begin … end, at least one vector.
template <class W, int K, int A, class F>
DEPLOYOPS_INLINE std::array<W, K> sums_of_part(int64_t begin, int64_t end, F& add) {
  constexpr int L = lanes<W>;
  Vectors<W, K> all{};
  int64_t i = begin;
  while (i + A * L <= end) {
    Vectors<W, K> sums[A] = {};
    const int64_t stop = std::min(end, i + A * L * vectors_per_sum);
    for (; i + A * L <= stop; i += A * L) {
#pragma GCC unroll 4
      for (int a = 0; a < A; ++a) add(i + a * L, AllLanes{}, sums[a]);
    }
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) {
      static_assert(A == 1 || A == 2 || A == 4);
      if constexpr (A == 1) all[k] += sums[0][k];
      if constexpr (A == 2) all[k] += sums[0][k] + sums[1][k];
      if constexpr (A == 4) all[k] += (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
    }
  }
  if constexpr (A > 1) {
    for (; i + L <= end; i += L) add(i, AllLanes{}, all);
  }
  if (i < end) {
    Vectors<W, K> more = all;
    add(end - L, AllLanes{}, more);
    const vec<int_of<W>> new_ones = lane_numbers<int_of<W>>() >= int_of<W>(i - (end - L));
    for (int k = 0; k < K; ++k) all[k] = new_ones ? more[k] : all[k];
  }
  std::array<W, K> totals;
  for (int k = 0; k < K; ++k) totals[k] = sum_of_lanes(all[k]);
  return totals;
}

}  // namespace detail

// How many vectors to add up side by side, so that they do not wait for each other: fewer where each needs more work.
template <class T>
constexpr int sums_at_once = std::is_same_v<T, wide_t<T>> ? 4 : 2;

// K sums over a row. add(i, live, sums) adds the terms of a vector to `sums`, an array of K vectors. The order of the
// additions depends on n only.
template <class W, int K, int A, class F>
DEPLOYOPS_INLINE std::array<W, K> row_sums(int64_t n, F&& add) {
  std::array<W, K> sums{};
  if (n < lanes<W>) {
    if (n == 0) return sums;
    detail::Vectors<W, K> terms{};
    add(int64_t(0), FirstLanes{int(n)}, terms);
    const vec<int_of<W>> in_row = lane_numbers<int_of<W>>() < int_of<W>(n);
    for (int k = 0; k < K; ++k) sums[k] = sum_of_lanes(in_row ? terms[k] : vec<W>{});
    return sums;
  }
  std::array<Total<W>, K> totals;
  for (int64_t begin = 0;;) {
    const int64_t end = detail::end_of_part<W>(begin, n);
    sums = detail::sums_of_part<W, K, A>(begin, end, add);
    if (begin == 0 && end == n) return sums;
    for (int k = 0; k < K; ++k) totals[k].add(sums[k]);
    begin = end;
    if (begin == n) break;
  }
  for (int k = 0; k < K; ++k) sums[k] = totals[k].value();
  return sums;
}

// Σ term(i, live) over a row.
template <class W, int A = 2, class F>
DEPLOYOPS_INLINE W row_sum(int64_t n, F&& term) {
  return row_sums<W, 1, A>(n, [&](int64_t i, auto live, detail::Vectors<W, 1>& sums) { sums[0] += term(i, live); })[0];
}

}  // namespace deployops
