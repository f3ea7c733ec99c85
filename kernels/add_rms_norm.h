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
  const bool past_caches = streams(y.data, rows, n, 2);
  const bool sums_past_caches =
      streams_lines<T> && past_caches && streams(residual_out.data, rows, n, 2) && n % lanes<W> == 0;
  // The sums of a row are kept until it is normalised: read back from memory, they would be a third stream of it.
  constexpr int64_t most_kept = 4096;
  const bool keeps = n <= most_kept;
  auto range = [&](int64_t begin, int64_t end) __attribute__((noinline)) {
    alignas(64) T kept[2][most_kept];  // a row is measured before the one before it is written
    const auto sums_of = [&](int64_t row) { return keeps ? kept[row % 2] : residual_out.data + row * n; };
    auto measure = [&](int64_t row) {
      const T *a = x.data + row * n, *b = residual.data + row * n;
      T *const sums = sums_of(row), *const out = residual_out.data + row * n;
      return detail::inverse_rms<T>(n, eps, [=](int64_t i, auto live) {
        const vec<W> v = load(a + i, live) + load(b + i, live);
        store<T>(sums + i, v, live);
        if (keeps && sums_past_caches) stream<T>(out + i, v);
        return load(sums + i, live);  // what is normalised is the rounded sum
      });
    };
    auto write = [&](int64_t row, W r) {
      T *const sums = sums_of(row), *const out = residual_out.data + row * n;
      auto y_at = [=, w = weight.data](int64_t i, auto live) {
        const vec<W> v = load(sums + i, live);
        if (keeps && !sums_past_caches) store<T>(out + i, v, live);
        return v * r * load(w + i, live);
      };
      write_row(y.data + row * n, n, past_caches, y_at);
    };
    measure_and_write(begin, end, n, measure, write);
    if (past_caches) stream_fence();
  };
  par(rows, rows_per_range(n), range);
}

}  // namespace deployops
