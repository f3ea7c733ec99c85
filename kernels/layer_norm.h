// layer_norm over the last dimension, accurate where the mean is large beside the deviations. A row is read from
// memory once: it is in the caches when it is read again.
#pragma once

#include "deployops/parallel.h"
#include "deployops/rows.h"
#include "deployops/tensor.h"

namespace deployops {

namespace detail {

// (x − mean − correction)·scale is the normalised row. The mean is rounded, which may be a large error beside the
// deviations; `correction` is what they have left as their mean.
template <class W>
struct RowMoments {
  W mean, correction, scale;
};

template <class T>
DEPLOYOPS_INLINE RowMoments<wide_t<T>> row_moments(const T* x, int64_t n, double eps) {
  using W = wide_t<T>;
  const double share = 1 / double(n);
  // From the first element on: the sum of a constant row is then 0, and its mean exact.
  const W first = W(x[0]);
  const W shifted = row_sum<W>(n, [&](int64_t i, auto live) { return load(x + i, live) - first; });
  W mean = W(double(first) + double(shifted) * share);
  if (!is_finite(mean)) {
    mean = W(double(row_sum<W>(n, [&](int64_t i, auto live) { return load(x + i, live); })) * share);
  }
  const auto sums = row_sums<W, 2>(n, [&](int64_t i, auto live, Vectors<W, 2>& to) {
    const vec<W> d = load(x + i, live) - mean;
    to[0] += d;
    to[1] = fma(d, d, to[1]);
  });
  const W correction = W(double(sums[0]) * share);
  const double squares = double(sums[1]) * share, square = double(correction) * double(correction);
  double variance = squares - square;
  if (square > squares / 2) {  // this has lost digits: the deviations are smaller than the rounding of the mean
    variance = share * double(row_sum<W>(n, [&](int64_t i, auto live) {
                 const vec<W> d = load(x + i, live) - mean - correction;
                 return d * d;
               }));
  }
  return {mean, correction, W(1 / std::sqrt(variance + eps))};
}

}  // namespace detail

template <class T>
void layer_norm(const Parallel& par, In<T> x, In<T> weight, In<T> bias, double eps, Out<T> y) {
  using W = wide_t<T>;
  require(x.rank > 0, "x has no dimension to normalise over");
  auto check = [&](const char* name, In<T> v) {
    if (!v) return;
    require(v.rank == 1, name, " has ", v.rank, " dimensions; expected 1");
    require(v.size(0) == x.size(-1), name, " holds ", v.size(0), " numbers; the last dimension of x has ", x.size(-1));
  };
  check("weight", weight);
  check("bias", bias);
  const int64_t n = x.size(-1), rows = x.numel(0, x.rank - 1);
  if (n == 0) return;
  const bool past_caches = streams(y.data, rows, n);
  par(rows, rows_per_range(n), [&](int64_t begin, int64_t end) {
    auto measure = [&](int64_t row) { return detail::row_moments(x.data + row * n, n, eps); };
    measure_and_write(begin, end, n, measure, [&](int64_t row, const detail::RowMoments<W>& moments) {
      auto write = [&](auto&& affine) {
        write_row(y.data + row * n, n, past_caches, [&, p = x.data + row * n](int64_t i, auto live) {
          return affine(i, live, (load(p + i, live) - moments.mean - moments.correction) * moments.scale);
        });
      };
      if (weight && bias) {
        write([&](int64_t i, auto live, vec<W> v) {
          return fma(v, load(weight.data + i, live), load(bias.data + i, live));
        });
      } else if (weight) {
        write([&](int64_t i, auto live, vec<W> v) { return v * load(weight.data + i, live); });
      } else if (bias) {
        write([&](int64_t i, auto live, vec<W> v) { return v + load(bias.data + i, live); });
      } else {
        write([](int64_t, auto, vec<W> v) { return v; });
      }
    });
    if (past_caches) stream_fence();
  });
}

}  // namespace deployops
