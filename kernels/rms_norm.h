// rms_norm over the last dimension. A row is read from memory once: it is in the caches when it is read again.
#pragma once

#include "deployops/parallel.h"
#include "deployops/rows.h"
#include "deployops/tensor.h"

namespace deployops {

namespace detail {

// 1/√(mean(x²) + eps) of a row; `x_at(i, live)` gives its vectors.
template <class W, class F>
DEPLOYOPS_INLINE W inverse_rms(int64_t n, double eps, F&& x_at) {
  const W squares = row_sums<W, 1>(n, [&](int64_t i, auto live, Vectors<W, 1>& sums) {
    const vec<W> v = x_at(i, live);
    sums[0] = fma(v, v, sums[0]);
  })[0];
  return W(1 / std::sqrt(double(squares) / double(n) + eps));
}

// y = x·r·weight for a row; `weight` may be null.
template <class T>
DEPLOYOPS_INLINE void scale_row(const T* x, wide_t<T> r, const T* weight, int64_t n, bool past_caches, T* y) {
  if (weight == nullptr) {
    write_row(y, n, past_caches, [=](int64_t i, auto live) { return load(x + i, live) * r; });
  } else {
    write_row(y, n, past_caches, [=](int64_t i, auto live) { return load(x + i, live) * r * load(weight + i, live); });
  }
}

template <class T>
void check_rms_norm_weight(In<T> x, In<T> weight) {
  require(x.rank > 0, "x has no dimension to normalise over");
  if (!weight) return;
  require(weight.rank == 1, "weight has ", weight.rank, " dimensions; expected 1");
  require(weight.size(0) == x.size(-1), "weight holds ", weight.size(0), " numbers; the last dimension of x has ",
          x.size(-1));
}

}  // namespace detail

template <class T>
void rms_norm(const Parallel& par, In<T> x, In<T> weight, double eps, Out<T> y) {
  using W = wide_t<T>;
  detail::check_rms_norm_weight(x, weight);
  const int64_t n = x.size(-1), rows = x.numel(0, x.rank - 1);
  if (n == 0) return;
  const bool past_caches = streams(y.data, rows, n);
  par(rows, rows_per_range(n), [&](int64_t begin, int64_t end) {
    measure_and_write(
        begin, end, n,
        [&](int64_t row) {
          return detail::inverse_rms<W>(n, eps, [p = x.data + row * n](int64_t i, auto live) { return load(p + i, live); });
        },
        [&](int64_t row, W r) {
          detail::scale_row(x.data + row * n, r, weight.data, n, past_caches, y.data + row * n);
        });
    if (past_caches) stream_fence();
  });
}

}  // namespace deployops
