// layer_norm over the last dimension, accurate where the mean is large beside the deviations. A row is read from
// memory once: it is in the caches when it is read again.
#pragma once

#include <cmath>
#include <utility>

#include "deployops/parallel.h"
#include "deployops/row_sums.h"
#include "deployops/untyped.h"

namespace deployops {

namespace detail {

// (x − mean − correction)·scale is the normalised row. The mean is rounded, which may be a large error beside the
// deviations; `correction` is what they have left as their mean.
template <class W>
struct RowMoments {
  W mean, correction, scale;
};

// What few rows need: the mean of (x − mean − correction)², and that of numbers so large that their sum overflows.
template <class T>
__attribute__((noinline))
double variance_of(const T* x, int64_t n, double share, wide_t<T> mean,
                                             wide_t<T> correction) {
  using W = wide_t<T>;
  const W sum = row_sum<W, 1>(n, [=](int64_t i, auto live) {
    const vec<W> d = load(x + i, live) - mean - correction;
    return d * d;
  });
  return double(sum) * share;
}
template <class T>
__attribute__((noinline))
wide_t<T> mean_of_large(const T* x, int64_t n, double share) {
  using W = wide_t<T>;
  return row_sum<W, 1>(n, [=, f = W(share)](int64_t i, auto live) { return load(x + i, live) * f; });
}

template <class T>
DEPLOYOPS_INLINE RowMoments<wide_t<T>> row_moments(const T* x, int64_t n, double share, double eps) {
  using W = wide_t<T>;
  constexpr int A = sums_at_once<T>;
  W mean = W(double(row_sum<W, A>(n, [=](int64_t i, auto live) { return load(x + i, live); })) * share);
  if (!is_finite(mean)) mean = mean_of_large(x, n, share);
  const auto sums = row_sums<W, 2, A>(n, [=](int64_t i, auto live, Vectors<W, 2>& to) {
    const vec<W> d = load(x + i, live) - mean;
    to[0] += d;
    to[1] = fma(d, d, to[1]);
  });
  W correction = W(double(sums[0]) * share);
  if (is_finite(mean) && !is_finite(correction)) correction = 0;  // too large for float, and so are their squares
  const double squares = double(sums[1]) * share, square = double(correction) * double(correction);
  double variance = squares - square;
  // That has lost digits where the deviations are smaller than the error of the mean.
  if (square > squares / 2 || !is_finite(squares)) {
    variance = variance_of(x, n, share, mean, correction);
  }
  return {mean, correction, W(1 / std::sqrt(variance + eps))};
}

__attribute__((noinline))
inline void check_layer_norm(In<char> x, In<char> weight, In<char> bias) {
  require(x.rank > 0, "x has no dimension to normalise over");
  for (auto [name, v] : {std::pair{"weight", weight}, std::pair{"bias", bias}}) {
    if (!v) continue;
    require(v.rank == 1, name, " has ", v.rank, " dimensions; expected 1");
    require(v.size(0) == x.size(-1), name, " holds ", v.size(0), " numbers; the last dimension of x has ", x.size(-1));
  }
}

}  // namespace detail

template <class T>
void layer_norm(const Parallel& par, In<T> x, In<T> weight, In<T> bias, double eps, Out<T> y) {
  using W = wide_t<T>;
  detail::check_layer_norm(untyped(x), untyped(weight), untyped(bias));
  const int64_t n = x.size(-1), rows = x.numel(0, x.rank - 1);
  if (n == 0) return;
  const bool past_caches = streams(y.data, rows, n, 2);
  const double share = 1 / double(n);
  const Same<T> ones(1.0f), zeros(-0.0f);  // a·1 + −0 is a, also where a is −0
  const RowOrSame<T> weights = ones.unless(weight.data), biases = zeros.unless(bias.data);
  auto range = [&](int64_t begin, int64_t end) __attribute__((noinline)) {
    measure_and_write(
        begin, end, n, [&](int64_t row) { return detail::row_moments(x.data + row * n, n, share, eps); },
        [&](int64_t row, detail::RowMoments<W> moments) {
          const T* p = x.data + row * n;
          auto y_at = [=, w = weights, b = biases](int64_t i, auto live) {
            const vec<W> normal = (load(p + i, live) - moments.mean - moments.correction) * moments.scale;
            return fma(normal, w.at(i, live), b.at(i, live));
          };
          write_row(y.data + row * n, n, past_caches, y_at, measured_soon(p, n));
        });
    if (past_caches) stream_fence();
  };
  par(rows, rows_per_range(n), range);
}

}  // namespace deployops
