// softmax along one dimension, the maximum subtracted first.
//
// A NaN is left out of the maximum: it makes its own exp NaN, then the sum, then the row. +∞ does so by ∞ − ∞, and
// so does −∞ where there is nothing else.
#pragma once

#include <algorithm>

#include "deployops/parallel.h"
#include "deployops/row_sums.h"
#include "deployops/untyped.h"
#include "deployops/vector_math.h"

namespace deployops {

namespace detail {

// How the exps of a row are kept until their sum is known: in y where that rounds nothing, in a buffer, or not at
// all, and are then computed again.
enum class Kept { in_y, in_buffer, nowhere };

// The softmax of rows of n numbers each.
template <class T, Kept kept>
class SoftmaxRows {
 public:
  using W = wide_t<T>;
  static constexpr int L = lanes<W>;
  static constexpr int64_t most_in_buffer = 2048;
  static constexpr int64_t short_row = 512;  // three passes are faster over longer ones

  SoftmaxRows(const T* x, int64_t n, T* y) : x_(x), n_(n), y_(y) {}

  void compute(int64_t begin, int64_t end) {
    W m = maximum(begin);
    W previous = m, sum{};
    for (int64_t row = begin; row < end; ++row) {
      W next{};
      if (kept != Kept::nowhere && row > begin && row + 1 < end && L <= n_ && n_ <= short_row) {
        all_passes(row, 1 / sum, m, sum, next);
      } else {
        if (row > begin) divide(row - 1, previous, 1 / sum);
        if (row + 1 < end) next = maximum(row + 1);
        sum = sum_of_exps(row, m);
      }
      previous = m;
      m = next;
    }
    divide(end - 1, previous, 1 / sum);
  }

 private:
  W maximum(int64_t row) const {
    return row_max<W>(n_, [p = x_ + row * n_](int64_t i, auto live) { return load(p + i, live); });
  }
  // These copy what they read of this object: what is stored might be a member, as far as the compiler knows.
  W sum_of_exps(int64_t row, W m) {
    const T* x = x_ + row * n_;
    T* y = y_ + row * n_;
    W* buffer = buffer_;
    // Arithmetic leaves time to fetch the row whose maximum comes next, and that which is written next.
    const Soon<T> x_soon(x, rows_ahead(n_) * 2 * n_), y_soon(y, rows_ahead(n_) * n_);
    return row_sum<W, 1>(n_, [=](int64_t i, auto live) {
      if constexpr (kept == Kept::in_y) {
        x_soon.fetch(i);
        y_soon.fetch(i);
      }
      const vec<W> v = deployops::exp_nonpositive(load(x + i, live) - m);
      if constexpr (kept == Kept::in_y) store<T>(y + i, v, live);
      if constexpr (kept == Kept::in_buffer) store<W>(buffer + i, v, live);
      return v;
    });
  }
  void divide(int64_t row, W m, W r) {
    const T* x = x_ + row * n_;
    const W* buffer = buffer_;
    if constexpr (kept == Kept::in_y) {
      rescale_row(y_ + row * n_, n_, r);
    } else {
      write_row(y_ + row * n_, n_, false, [=](int64_t i, auto live) {
        if constexpr (kept == Kept::in_buffer) return load(buffer + i, live) * r;
        return deployops::exp_nonpositive(load(x + i, live) - m) * r;
      });
    }
  }

  // `divide` of the row before, with its r, `sum_of_exps` of this row, and `maximum` of the next, in one loop:
  // the exps keep the arithmetic units busy, the other two the memory. n is at least a vector. The additions have the
  // order of `sum_of_exps`: where a range of rows begins and ends changes no result.
  void all_passes(int64_t row, W r, W m, W& sum_of_row, W& next) {
    const int64_t n = n_;
    const T *x = x_ + row * n, *x_next = x + n;
    T *y = y_ + row * n, *y_before = y - n;
    W* buffer = buffer_;
    auto kept_before = [=](int64_t i) {
      if constexpr (kept == Kept::in_y) return load(y_before + i);
      return load(buffer + i);
    };
    auto exp_at = [=](int64_t i) {
      const vec<W> v = deployops::exp_nonpositive(load(x + i) - m);
      if constexpr (kept == Kept::in_y) store<T>(y + i, v);
      if constexpr (kept == Kept::in_buffer) store<W>(buffer + i, v);
      return v;
    };
    vec<W> largest_next = broadcast(-std::numeric_limits<W>::infinity());
    Total<W> total;
    const vec<W> last = kept_before(n - L) * r;  // before something else is kept there
    for (int64_t i = 0; i < n;) {
      const int64_t end = end_of_part<W>(i, n);
      vec<W> sums{};
      while (i + L <= end) {
        vec<W> some{};
        for (const int64_t stop = std::min(end, i + vectors_per_sum * L); i + L <= stop; i += L) {
          store<T>(y_before + i, kept_before(i) * r);
          some += exp_at(i);
          largest_next = larger_number(load(x_next + i), largest_next);
        }
        sums += some;
      }
      if (i < end) {
        store<T>(y_before + n - L, last);
        sums += lane_numbers<int_of<W>>() >= int_of<W>(i - (n - L)) ? exp_at(n - L) : vec<W>{};
        i = end;
      }
      total.add(sum_of_lanes(sums));
    }
    sum_of_row = total.value();
    next = largest_number(larger_number(load(x_next + n - L), largest_next));
  }

  const T* x_;
  int64_t n_;
  T* y_;
  W buffer_[kept == Kept::in_buffer ? most_in_buffer : 1];
};

template <class T>
__attribute__((noinline))
void softmax_rows(const T* x, int64_t begin, int64_t end, int64_t n, T* y) {
  if constexpr (std::is_same_v<T, wide_t<T>>) {
    SoftmaxRows<T, Kept::in_y>(x, n, y).compute(begin, end);
  } else if (n <= SoftmaxRows<T, Kept::in_buffer>::most_in_buffer) {
    SoftmaxRows<T, Kept::in_buffer>(x, n, y).compute(begin, end);
  } else {
    SoftmaxRows<T, Kept::nowhere>(x, n, y).compute(begin, end);
  }
}

// Columns that are done together: the maxima and sums of so many stay in the first cache.
template <class W>
constexpr int64_t columns_at_once = 2048 / sizeof(W);

// The softmax of `width` columns of n numbers, each `stride` after the one above.
template <class T>
__attribute__((noinline))
void softmax_columns(const T* x, int64_t n, int64_t stride, int64_t width, T* y) {
  using W = wide_t<T>;
  constexpr int L = lanes<W>;
  alignas(64) W largest[columns_at_once<W>], sum[columns_at_once<W>], total[columns_at_once<W>],
      rounding[columns_at_once<W>];
  const int64_t padded = (width + L - 1) / L * L;
  std::fill_n(largest, padded, -std::numeric_limits<W>::infinity());
  std::fill_n(total, padded, W(0));
  std::fill_n(rounding, padded, W(0));
  // f(place in the arrays, live lanes) for each vector of a line; no overlap, the sums are added to in place
  auto each = [width](auto&& f) {
    int64_t j = 0;
    for (; j + L <= width; j += L) f(j, AllLanes{});
    if (j < width) f(j, FirstLanes{int(width - j)});
  };
  for (int64_t i = 0; i < n; ++i) {
    each([&, line = x + i * stride](int64_t j, auto live) {
      store<W>(largest + j, larger_number(load(line + j, live), load(largest + j)));
    });
  }
  auto e = [&](int64_t i, int64_t j, auto live) {
    return deployops::exp_nonpositive(load(x + i * stride + j, live) - load(largest + j));
  };
  constexpr int64_t lines_per_part = 16;
  for (int64_t begin = 0; begin < n; begin += lines_per_part) {
    const int64_t end = std::min(n, begin + lines_per_part);
    std::fill_n(sum, padded, W(0));
    for (int64_t i = begin; i < end; ++i) {
      each([&](int64_t j, auto live) {
        const vec<W> v = e(i, j, live);
        if constexpr (std::is_same_v<T, W>) store<T>(y + i * stride + j, v, live);
        store<W>(sum + j, load(sum + j) + v);
      });
    }
    for (int64_t j = 0; j < padded; j += L) {  // Knuth's TwoSum
      const vec<W> a = load(total + j), b = load(sum + j), s = a + b, taken = s - a;
      store<W>(rounding + j, load(rounding + j) + ((a - (s - taken)) + (b - taken)));
      store<W>(total + j, s);
    }
  }
  for (int64_t j = 0; j < padded; j += L) store<W>(total + j, W(1) / (load(total + j) + load(rounding + j)));
  for (int64_t i = 0; i < n; ++i) {
    each([&](int64_t j, auto live) {
      T* to = y + i * stride + j;
      if constexpr (std::is_same_v<T, W>) {
        store<T>(to, load(to, live) * load(total + j), live);
      } else {
        store<T>(to, e(i, j, live) * load(total + j), live);
      }
    });
  }
}

__attribute__((noinline))
inline int softmax_dim(In<char> x, int64_t dim) {
  require(-x.rank <= dim && dim < x.rank, "dim = ", dim, ", but x has ", x.rank, " dimensions");
  return int(dim < 0 ? dim + x.rank : dim);
}

}  // namespace detail

template <class T>
void softmax(const Parallel& par, In<T> x, int64_t dim, Out<T> y) {
  using W = wide_t<T>;
  const int d = detail::softmax_dim(untyped(x), dim);
  const int64_t n = x.size(d), outer = x.numel(0, d), inner = x.numel(d + 1, x.rank);
  if (n == 0 || inner == 0) return;
  constexpr int64_t elements_per_range = 8192;
  if (inner == 1) {
    auto rows = [&](int64_t begin, int64_t end) { detail::softmax_rows(x.data, begin, end, n, y.data); };
    return par(outer, std::max<int64_t>(1, elements_per_range / n), rows);
  }
  // As many columns at once as leave what they read in the second cache, in whole lines of it.
  constexpr int64_t least = 256 / sizeof(W), second_cache = 262144 / sizeof(T);
  const int64_t width = std::clamp(second_cache / n / least * least, least, detail::columns_at_once<W>);
  const int64_t tiles = (inner + width - 1) / width;
  auto columns = [&](int64_t begin, int64_t end) __attribute__((noinline)) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile % tiles * width, at = tile / tiles * n * inner + first;
      detail::softmax_columns(x.data + at, n, inner, std::min(width, inner - first), y.data + at);
    }
  };
  par(outer * tiles, std::max<int64_t>(1, elements_per_range / (n * std::min(width, inner))), columns);
}

}  // namespace deployops
