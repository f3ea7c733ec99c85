// rms_norm over the last dimension. A row is read from memory once: it is in the caches when it is read again.
#pragma once

#include <cmath>

#include "deployops/parallel.h"
#include "deployops/row_sums.h"
#include "deployops/untyped.h"

namespace deployops {

namespace detail {

// 1/√(mean(x²) + eps) of a row; `x_at(i, live)` gives its vectors.
template <class T, class F>
DEPLOYOPS_INLINE wide_t<T> inverse_rms(int64_t n, double eps, F&& x_at) {
  using W = wide_t<T>;
  const W squares = row_sums<W, 1, sums_at_once<T>>(n, [&](int64_t i, auto live, Vectors<W, 1>& sums) {
    const vec<W> v = x_at(i, live);
    sums[0] = fma(v, v, sums[0]);
  })[0];
  return W(1 / std::sqrt(double(squares) / double(n) + eps));
}

__attribute__((noinline))
inline void check_rms_norm_weight(In<char> x, In<char> weight) {
  require(x.rank > 0, "x has no dimension to normalise over");
  if (!weight) return;
  require(weight.rank == 1, "weight has ", weight.rank, " dimensions; expected 1");
  require(weight.size(0) == x.size(-1), "weight holds ", weight.size(0), " numbers; the last dimension of x has ",
          x.size(-1));
}

}  // namespace detail

template <class T>
void rms_norm(const Parallel& par, In<T> x, In<T> weight, double eps, Out<T> y) {
  detail::check_rms_norm_weight(untyped(x), untyped(weight));
  const int64_t n = x.size(-1), rows = x.numel(0, x.rank - 1);
  if (n == 0) return;
  const bool past_caches = streams(y.data, rows, n, 2);
  const Same<T> ones(1.0f);
  const RowOrSame<T> weights = ones.unless(weight.data);
  auto range = [&](int64_t begin, int64_t end) __attribute__((noinline)) {
    measure_and_write(
        begin, end, n,
        [&](int64_t row) {
          auto x_at = [p = x.data + row * n](int64_t i, auto live) { return load(p + i, live); };
          return detail::inverse_rms<T>(n, eps, x_at);
        },
        [&](int64_t row, wide_t<T> r) {
          const T* p = x.data + row * n;
          auto y_at = [=, w = weights](int64_t i, auto live) { return load(p + i, live) * r * w.at(i, live); };
          write_row(y.data + row * n, n, past_caches, y_at, measured_soon(p, n));
        });
    if (past_caches) stream_fence();
  };
  par(rows, rows_per_range(n), range);
}

}  // namespace deployops
