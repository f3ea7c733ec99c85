// mean_pool: the global average of each channel.
#pragma once

#include "deployops/parallel.h"
#include "deployops/row_sums.h"
#include "deployops/untyped.h"

namespace deployops {

namespace detail {

__attribute__((noinline))
inline void check_mean_pool(In<char> x) {
  require(x.rank == 4 || x.rank == 2, "x has ", x.rank,
          " dimensions; expected 4, (N, C, H, W) to average over H and W, or 2, (N, L) to average over L");
}

}  // namespace detail

template <class T>
void mean_pool(const Parallel& par, In<T> x, Out<T> y) {
  using W = wide_t<T>;
  detail::check_mean_pool(untyped(x));
  const int64_t rows = x.numel(0, x.rank / 2), n = x.numel(x.rank / 2, x.rank);
  auto sum = [&](int64_t begin, int64_t count) __attribute__((noinline)) {
    return row_sum<W, sums_at_once<T>>(count, [p = x.data + begin](int64_t i, auto live) { return load(p + i, live); });
  };
  // The mean of nothing is 0/0.
  auto mean = [&](W total) { return T(W(double(total) / double(n))); };

  // Few long rows are cut, so that every thread has something to do. Where depends on the shape only, and so does
  // the result.
  constexpr int64_t piece = 65536;
  const int64_t pieces = rows < 16 ? n / piece : 1;
  if (pieces <= 1) {
    par(rows, rows_per_range(n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) y[row] = mean(sum(row * n, n));
    });
    return;
  }
  const Scratch<W> parts = par.scratch<W>(rows * pieces);
  par(rows * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k % pieces * piece, count = k % pieces == pieces - 1 ? n - first : piece;
      parts[k] = sum(k / pieces * n + first, count);
    }
  });
  for (int64_t row = 0; row < rows; ++row) {
    Total<W> total;
    for (int64_t k = 0; k < pieces; ++k) total.add(parts[row * pieces + k]);
    y[row] = mean(total.value());
  }
}

}  // namespace deployops
