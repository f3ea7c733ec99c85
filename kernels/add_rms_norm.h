// x + residual, rounded, and its rms_norm. Both inputs are read from memory and both outputs written once.
#pragma once

#include "rms_norm.h"

namespace deployops {

namespace detail {

__attribute__((noinline))
inline void check_add_rms_norm(In<char> x, In<char> residual, In<char> weight) {
  check_rms_norm_weight(x, weight);
  bool same = x.rank == residual.rank;
  for (int d = 0; same && d < x.rank; ++d) same = x.size(d) == residual.size(d);
  require(same, "x is ", x, ", residual ", residual, "; expected one shape");
}

}  // namespace detail

template <class T>
void add_rms_norm(const Parallel& par, In<T> x, In<T> residual, In<T> weight, double eps, Out<T> y,
                  Out<T> residual_out) {
  using W = wide_t<T>;
  detail::check_add_rms_norm(untyped(x), untyped(residual), untyped(weight));
  const int64_t n = x.size(-1), rows = x.numel(0, x.rank - 1);
  if (n == 0) return;
  const bool past_caches = streams(y.data, rows, n);
  // Outputs larger than the caches: the sum is computed twice rather than read back from where it was written. No half
  // is, so that it needs no rounding.
  const bool sums_past_caches =
      streams_lines<T> && past_caches && streams(residual_out.data, rows, n) && n % lanes<W> == 0;
  auto range = [&](int64_t begin, int64_t end) __attribute__((noinline)) {
    auto sums_of = [&](int64_t row) {
      return [a = x.data + row * n, b = residual.data + row * n](int64_t i, auto live) {
        return load(a + i, live) + load(b + i, live);
      };
    };
    auto measure = [&](int64_t row) {
      auto sum_at = [at = sums_of(row), to = residual_out.data + row * n, sums_past_caches](int64_t i, auto live) {
        const vec<W> v = at(i, live);
        if (sums_past_caches) return v;
        store<T>(to + i, v, live);  // what is normalised is the rounded sum
        return load(to + i, live);
      };
      return detail::inverse_rms<T>(n, eps, sum_at);
    };
    auto write = [&](int64_t row, W r) {
      T* const sum = residual_out.data + row * n;
      if (!sums_past_caches) {
        return detail::scale_row<T>(sum, r, {weight.data, -1}, n, past_caches, y.data + row * n);
      }
      auto y_at = [at = sums_of(row), sum, w = weight.data, r](int64_t i, auto live) {
        const vec<W> v = at(i, live);
        stream<T>(sum + i, v);
        return v * r * load(w + i, live);
      };
      write_row(y.data + row * n, n, true, y_at, [a = x.data + row * n, b = residual.data + row * n, n](int64_t i) {
        prefetch(a + i, 2 * n);
        prefetch(b + i, 2 * n);
      });
    };
    measure_and_write(begin, end, n, measure, write);
    if (past_caches) stream_fence();
  };
  par(rows, rows_per_range(n), range);
}

}  // namespace deployops
