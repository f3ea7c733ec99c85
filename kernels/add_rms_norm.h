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
  detail::check_add_rms_norm(untyped(x), untyped(residual), untyped(weight));
  const int64_t n = x.size(-1), rows = x.numel(0, x.rank - 1);
  if (n == 0) return;
  const bool past_caches = streams(y.data, rows, n);
  auto range = [&](int64_t begin, int64_t end) __attribute__((noinline)) {
    measure_and_write(
        begin, end, n,
        [&](int64_t row) {
          // What is normalised is the rounded sum.
          auto sum_at = [a = x.data + row * n, b = residual.data + row * n,
                         sum = residual_out.data + row * n](int64_t i, auto live) {
            store<T>(sum + i, load(a + i, live) + load(b + i, live), live);
            return load(sum + i, live);
          };
          return detail::inverse_rms<T>(n, eps, sum_at);
        },
        [&](int64_t row, wide_t<T> r) {
          detail::scale_row<T>(residual_out.data + row * n, r, {weight.data, -1}, n, past_caches, y.data + row * n);
        });
    if (past_caches) stream_fence();
  };
  par(rows, rows_per_range(n), range);
}

}  // namespace deployops
