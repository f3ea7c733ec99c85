// x + residual, rounded, and its rms_norm. Both inputs are read and both outputs are written once.
#pragma once

#include "rms_norm.h"

namespace deployops {

template <class T>
void add_rms_norm(const Parallel& par, In<T> x, In<T> residual, In<T> weight, double eps, Out<T> y,
                  Out<T> residual_out) {
  using W = wide_t<T>;
  detail::check_rms_norm_weight(x, weight);
  require(x.rank == residual.rank, "x has ", x.rank, " dimensions, residual ", residual.rank,
          "; expected one shape");
  for (int d = 0; d < x.rank; ++d) {
    require(x.size(d) == residual.size(d), "x is ", x, ", residual ", residual, "; expected one shape");
  }
  const int64_t n = x.size(-1), rows = x.numel(0, x.rank - 1);
  if (n == 0) return;
  const bool past_caches = streams(y.data, rows, n);
  par(rows, rows_per_range(n), [&](int64_t begin, int64_t end) {
    measure_and_write(
        begin, end, n,
        [&](int64_t row) {
          // What is normalised is the rounded sum.
          return detail::inverse_rms<W>(n, eps, [&, first = row * n](int64_t i, auto live) {
            T* total = residual_out.data + first + i;
            store<T>(total, load(x.data + first + i, live) + load(residual.data + first + i, live), live);
            return load(total, live);
          });
        },
        [&](int64_t row, W r) {
          detail::scale_row<T>(residual_out.data + row * n, r, weight.data, n, past_caches, y.data + row * n);
        });
    if (past_caches) stream_fence();
  });
}

}  // namespace deployops
