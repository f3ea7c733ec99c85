// Passes over a row of n contiguous elements, a vector at a time.
//
// A pass calls f(i, live) for vectors that cover the row: the whole ones, then one for what is left. That last
// one ends where the row ends, so it overlaps the one before; only a row shorter than a vector is read in part.
// Results that are written twice are the same ones, so a pass must not read what it writes (`rescale_row` may).
#pragma once

#include <algorithm>
#include <limits>
#include <utility>

#include "deployops/simd.h"

namespace deployops {

// Which lanes of a vector are in the row.
struct AllLanes {};
struct FirstLanes {
  int count;
};

template <class T>
DEPLOYOPS_INLINE vec<wide_t<T>> load(const T* p, AllLanes) {
  return load(p);
}
template <class T>
DEPLOYOPS_INLINE vec<wide_t<T>> load(const T* p, FirstLanes live) {
  return load(p, live.count);
}
template <class T>
DEPLOYOPS_INLINE void store(T* p, vec<wide_t<T>> v, AllLanes) {
  store<T>(p, v);
}
template <class T>
DEPLOYOPS_INLINE void store(T* p, vec<wide_t<T>> v, FirstLanes live) {
  store<T>(p, v, live.count);
}

// 0, 1, 2, …
template <class I>
DEPLOYOPS_INLINE vec<I> lane_numbers() {
  vec<I> v{};
  for (int i = 0; i < lanes<I>; ++i) v[i] = I(i);
  return v;
}

// The larger one of each pair; b where a is NaN. One instruction on x86, which `maximum` is not.
template <class V>
DEPLOYOPS_INLINE V larger_number(V a, V b) {
#if defined(DEPLOYOPS_AVX512)
  if constexpr (sizeof(element_t<V>) == 4) {
    return (V)_mm512_maskz_max_ps(__mmask16(-1), (__m512)a, (__m512)b);
  } else {
    return (V)_mm512_maskz_max_pd(__mmask8(-1), (__m512d)a, (__m512d)b);
  }
#elif defined(DEPLOYOPS_AVX2)
  if constexpr (sizeof(element_t<V>) == 4) {
    return (V)_mm256_max_ps((__m256)a, (__m256)b);
  } else {
    return (V)_mm256_max_pd((__m256d)a, (__m256d)b);
  }
#elif defined(__x86_64__)
  if constexpr (sizeof(element_t<V>) == 4) {
    return (V)_mm_max_ps((__m128)a, (__m128)b);
  } else {
    return (V)_mm_max_pd((__m128d)a, (__m128d)b);
  }
#else
  return a > b ? a : b;
#endif
}

// The largest lane, NaN left out.
template <class V>
DEPLOYOPS_INLINE element_t<V> largest_number(V v) {
  return fold(v, [](auto a, auto b) { return a > b ? a : b; });
}

// The largest number of f(i, live) over a row, NaN left out; −∞ where there is none.
template <class W, class F>
DEPLOYOPS_INLINE W row_max(int64_t n, F&& f) {
  constexpr int L = lanes<W>;
  const vec<W> least = broadcast(-std::numeric_limits<W>::infinity());
  vec<W> found[4] = {least, least, least, least};
  if (n < L) {
    const vec<int_of<W>> in_row = lane_numbers<int_of<W>>() < int_of<W>(n);
    found[0] = larger_number(in_row ? f(int64_t(0), FirstLanes{int(n)}) : least, least);
  } else {
    int64_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) {
#pragma GCC unroll 4
      for (int a = 0; a < 4; ++a) found[a] = larger_number(f(i + a * L, AllLanes{}), found[a]);
    }
    for (; i + L <= n; i += L) found[0] = larger_number(f(i, AllLanes{}), found[0]);
    if (i < n) found[1] = larger_number(f(n - L, AllLanes{}), found[1]);
  }
  return largest_number(larger_number(larger_number(found[0], found[1]), larger_number(found[2], found[3])));
}

// Whether `stream` is more than `store`.
#if defined(DEPLOYOPS_AVX512) || defined(DEPLOYOPS_AVX2)
constexpr bool can_stream = true;
#else
constexpr bool can_stream = false;
#endif

// Memory that is used soon, `further` elements behind p: fetching brings it into the caches meanwhile, a line at a time. It
// may lie behind its tensor, where that does nothing.
template <class T>
class Soon {
 public:
  Soon(const T* p, int64_t further) : first_(reinterpret_cast<uintptr_t>(p) + uintptr_t(further) * sizeof(T)) {}
  DEPLOYOPS_INLINE void fetch(int64_t i) const {
    __builtin_prefetch(reinterpret_cast<const void*>(first_ + uintptr_t(i) * sizeof(T)));
  }

 private:
  uintptr_t first_;
};
struct NothingSoon {
  DEPLOYOPS_INLINE void fetch(int64_t) const {}
};

// y[i …] = f(i, live). With `past_caches`, y is aligned for `stream`; end with `stream_fence`.
template <class T, class F, class S = NothingSoon>
DEPLOYOPS_INLINE void write_row(T* y, int64_t n, bool past_caches, F&& f, S soon = {}) {
  constexpr int L = lanes<wide_t<T>>;
  constexpr int in_line = L * sizeof(T) < 64 ? 64 / (L * sizeof(T)) : 1;
  if (n < L) {
    if (n > 0) store<T>(y, f(int64_t(0), FirstLanes{int(n)}), int(n));
    return;
  }
  int64_t i = 0;
  auto lines = [&](auto put) __attribute__((always_inline)) {
    for (; i + in_line * L <= n; i += in_line * L) {
      soon.fetch(i);
      vec<wide_t<T>> v[in_line];
#pragma GCC unroll 4
      for (int u = 0; u < in_line; ++u) v[u] = f(i + u * L, AllLanes{});
#pragma GCC unroll 4
      for (int u = 0; u < in_line; ++u) put(y + i + u * L, v[u]);
    }
  };
  if (can_stream && past_caches) {
    lines([](T* p, vec<wide_t<T>> v) { stream<T>(p, v); });
  } else {
    lines([](T* p, vec<wide_t<T>> v) { store<T>(p, v); });
  }
  for (; i + L <= n; i += L) store<T>(y + i, f(i, AllLanes{}));
  if (i < n) store<T>(y + n - L, f(n - L, AllLanes{}));
}

// y[i …] *= factor.
template <class W>
DEPLOYOPS_INLINE void rescale_row(W* y, int64_t n, W factor) {
  constexpr int L = lanes<W>;
  if (n < L) {
    if (n > 0) store<W>(y, load(y, int(n)) * factor, int(n));
    return;
  }
  const vec<W> last = load(y + n - L) * factor;  // before the vectors that it overlaps are written
  for (int64_t i = 0; i + L <= n; i += L) store<W>(y + i, load(y + i) * factor);
  store<W>(y + n - L, last);
}

// Whether `stream` writes whole lines of the caches: parts of them are lost time where other work comes between.
template <class T>
constexpr bool streams_lines = can_stream && lanes<wide_t<T>> * sizeof(T) == 64;

// Whether to write y past the caches: its rows are aligned, and what a call reads and writes, `tensors` of the size of
// y, is larger than the caches.
template <class T>
inline bool streams(const T* y, int64_t rows, int64_t n, int64_t tensors) {
  constexpr size_t bytes = lanes<wide_t<T>> * sizeof(T);
  const bool aligned = reinterpret_cast<uintptr_t>(y) % bytes == 0 && (rows == 1 || size_t(n) * sizeof(T) % bytes == 0);
  return can_stream && aligned && larger_than_caches<T>(tensors * rows * n);
}

// Rows of n elements that are measured before the row before them is written. So the latency of a measurement's last
// steps (across the lanes, √, division) costs nothing.
inline int64_t rows_ahead(int64_t n) { return n <= 16384 ? 1 : 0; }

// What is measured soon when a row of x is written: what is behind the next row, which has been measured. The processor
// does not foresee it, as it sees rows read twice and written between. Long rows fetch themselves, which costs little.
template <class T>
DEPLOYOPS_INLINE Soon<T> measured_soon(const T* row, int64_t n) {
  constexpr int64_t further = 4096 / sizeof(T);
  return {row, rows_ahead(n) * (2 * n + further)};
}

// found = measure(row), then write(row, found), for each row.
template <class M, class F>
DEPLOYOPS_INLINE void measure_and_write(int64_t begin, int64_t end, int64_t n, M&& measure, F&& write) {
  const int64_t ahead = rows_ahead(n);
  decltype(measure(begin)) found{}, next{};
  for (int64_t row = begin; row < end + ahead; ++row) {
    if (row < end) next = measure(row);
    if (row - ahead >= begin) write(row - ahead, ahead ? found : next);
    found = next;
  }
}

// A weight or bias of n numbers that may be absent: then a vector of the same number is read again and again.
template <class T>
struct RowOrSame {
  const T* first;
  int64_t mask;
  template <class Live>
  DEPLOYOPS_INLINE vec<wide_t<T>> at(int64_t i, Live live) const {
    return load(first + (i & mask), live);
  }
};

// A vector of the same number.
template <class T>
class Same {
 public:
  explicit Same(float number) { std::fill_n(numbers_, lanes<wide_t<T>>, T(number)); }
  RowOrSame<T> unless(const T* row) const { return row == nullptr ? RowOrSame<T>{numbers_, 0} : RowOrSame<T>{row, -1}; }

 private:
  T numbers_[lanes<wide_t<T>>];
};

// Rows that one thread should have at least, of n elements of a cheap pass.
inline int64_t rows_per_range(int64_t n) {
  constexpr int64_t elements = 32768;
  return n >= elements ? 1 : elements / (n < 1 ? 1 : n);
}

}  // namespace deployops
