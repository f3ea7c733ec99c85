// The loop of elementwise operators: y = f(x, …) for vectors of contiguous or repeated operands.
//
// Only the loop itself is compiled for each f; what divides the output into pieces calls it by its address.
#pragma once

#include <algorithm>
#include <utility>

#include "deployops/parallel.h"
#include "deployops/repeated.h"

namespace deployops {

// What f costs: as little as reading and writing, or some thirty instructions for a vector.
enum class Cost { memory, arithmetic };

namespace detail {

// y[i] = f(x[i], …) for n elements, at least a vector of them. With `past_caches`, they are written there.
template <class T>
using ElementwiseLoop = void (*)(const void* f, T* y, int64_t n, bool past_caches, const Piece<T>* x);

template <Cost cost, class T, class F, size_t... k>
DEPLOYOPS_INLINE void elementwise_loop(const F& f, T* y, int64_t n, bool past_caches, const Piece<T>* pieces,
                                       std::index_sequence<k...>) {
  constexpr int L = lanes<wide_t<T>>;
  // Vectors at once: with one vector of a long f, the processor would wait. Where vectors are short, code is to be small.
  constexpr bool wide = vector_bytes > 16;
  constexpr int unrolled = cost == Cost::memory ? (wide || sizeof(T) > 2 ? 4 : 1) : (wide ? 2 : 1);
  const Piece<T> x[] = {pieces[k]...};
  auto at = [&](int64_t i) __attribute__((always_inline)) { return f(load(x[k].first + (i & x[k].mask))...); };
  auto write = [&](int64_t i, auto put) __attribute__((always_inline)) {
    for (; i + unrolled * L <= n; i += unrolled * L) {
      vec<wide_t<T>> v[unrolled];
#pragma GCC unroll 4
      for (int u = 0; u < unrolled; ++u) v[u] = at(i + u * L);
#pragma GCC unroll 4
      for (int u = 0; u < unrolled; ++u) put(y + i + u * L, v[u]);
    }
    return i;
  };
  int64_t i = 0;
  if (wide && past_caches) {
    constexpr uintptr_t bytes = L * sizeof(T);
    i = int64_t((bytes - reinterpret_cast<uintptr_t>(y) % bytes) % bytes / sizeof(T));
    // Up to there y is not aligned; a whole vector is written, part of it once more.
    if (i > 0) store<T>(y, at(0));
    i = write(i, [](T* p, vec<wide_t<T>> v) { stream<T>(p, v); });
  } else {
    i = write(i, [](T* p, vec<wide_t<T>> v) { store<T>(p, v); });
  }
  // The last vector ends with the last element: some of them are computed twice.
  while (i < n) {
    const int64_t last = std::min(i, n - L);
    store<T>(y + last, at(last));
    i = last + L;
  }
}

template <class T, class F, int N>
void loop_of_memory(const void* f, T* y, int64_t n, bool past_caches, const Piece<T>* x) {
  elementwise_loop<Cost::memory>(*static_cast<const F*>(f), y, n, past_caches, x, std::make_index_sequence<N>{});
}

// GCC lets these vectors wait for each other, unless it may reorder instructions before it assigns registers.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("schedule-insns")
#endif
template <class T, class F, int N>
void loop_of_arithmetic(const void* f, T* y, int64_t n, bool past_caches, const Piece<T>* x) {
  elementwise_loop<Cost::arithmetic>(*static_cast<const F*>(f), y, n, past_caches, x, std::make_index_sequence<N>{});
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

// A loop, its function, and the output.
template <class T>
struct ElementwiseWork {
  ElementwiseLoop<T> loop;
  const void* f;
  T* y;
  int64_t n;
  bool past_caches;
};

// Elements from `first` on, of which there may be fewer than a vector.
template <class T, int N>
DEPLOYOPS_INLINE void elementwise_piece(const ElementwiseWork<T>& work, int64_t first, int64_t count, Piece<T>* x) {
  constexpr int L = lanes<wide_t<T>>;
  if (count >= L) {
    work.loop(work.f, work.y + first, count, work.past_caches, x);
    return;
  }
  T padded[N][L] = {}, result[L];
  for (int k = 0; k < N; ++k) {
    std::copy_n(x[k].first, count, padded[k]);
    x[k] = {padded[k], -1};
  }
  work.loop(work.f, result, L, false, x);
  std::copy_n(result, count, work.y + first);
}

// The elements begin … end of operands that do not repeat.
template <class T, int N>
__attribute__((noinline)) void elementwise_contiguous(const ElementwiseWork<T>& work, const T* const* data,
                                                      int64_t begin, int64_t end) {
  Piece<T> x[N];
  for (int k = 0; k < N; ++k) x[k] = {data[k] + begin, -1};
  elementwise_piece<T, N>(work, begin, end - begin, x);
  if (work.past_caches) stream_fence();
}

// … of operands that may.
template <class T, int N>
__attribute__((noinline)) void elementwise_repeated(const ElementwiseWork<T>& work, const T* const* data,
                                                    const RepeatedLayout<N>& layout, int64_t begin, int64_t end) {
  // Rows from which on a row is a piece: longer ones where their ends, which are not aligned, cost more.
  const int64_t row = layout.size(layout.rank() - 1);
  const bool by_rows = row >= (work.past_caches ? 128 : 8) * lanes<wide_t<T>>;
  Repeated<T> operands[N];
  for (int k = 0; k < N; ++k) {
    operands[k].set(layout, k, data[k]);
    if (by_rows) operands[k].start(begin);
  }
  // The second block and those after it are aligned.
  constexpr uintptr_t bytes = lanes<wide_t<T>> * sizeof(T);
  int64_t most = Repeated<T>::block - int64_t(reinterpret_cast<uintptr_t>(work.y + begin) % bytes / sizeof(T));
  for (int64_t first = begin; first < end;) {
    const int64_t count = std::min(by_rows ? row - first % row : most, end - first);
    Piece<T> x[N];
    for (int k = 0; k < N; ++k) x[k] = by_rows ? operands[k].row() : operands[k].at(first, count);
    elementwise_piece<T, N>(work, first, count, x);
    first += count;
    most = Repeated<T>::block;
  }
  if (work.past_caches) stream_fence();
}

// Elements that are worth a thread.
constexpr int64_t elementwise_grain(Cost cost) { return cost == Cost::memory ? 32768 : 8192; }

template <class T, int N>
__attribute__((noinline)) void run_contiguous(const Parallel& par, Cost cost, const ElementwiseWork<T>& work,
                                              const T* const* data) {
  par(work.n, elementwise_grain(cost),
      [&](int64_t begin, int64_t end) { elementwise_contiguous<T, N>(work, data, begin, end); });
}

template <class T, int N>
__attribute__((noinline)) void run_repeated(const Parallel& par, Cost cost, const ElementwiseWork<T>& work,
                                            const T* const* data, const RepeatedLayout<N>& layout) {
  if (layout.repeats_nothing()) {
    run_contiguous<T, N>(par, cost, work, data);
  } else {
    par(work.n, elementwise_grain(cost),
        [&](int64_t begin, int64_t end) { elementwise_repeated(work, data, layout, begin, end); });
  }
}

template <Cost cost, class T, class F, int N>
DEPLOYOPS_INLINE ElementwiseWork<T> elementwise_work(T* y, int64_t n, const F& f) {
  // Past the caches go whole vectors in line, which memory that a caller bound at any address may never be.
  const bool past_caches = larger_than_caches<T>(n) && reinterpret_cast<uintptr_t>(y) % sizeof(T) == 0;
  constexpr auto loop = cost == Cost::memory ? loop_of_memory<T, F, N> : loop_of_arithmetic<T, F, N>;
  return {loop, &f, y, n, past_caches};
}

}  // namespace detail

// y[i] = f(x[i], …) for i from 0 to n − 1, in vectors of wide_t<T>. y overlaps no operand.
template <Cost cost, class T, class F, class... X>
void elementwise(const Parallel& par, T* y, int64_t n, const F& f, const X*... x) {
  const T* const data[] = {x...};
  detail::run_contiguous<T, sizeof...(X)>(par, cost, detail::elementwise_work<cost, T, F, sizeof...(X)>(y, n, f), data);
}

// As above, with operands that repeat as `layout` says.
template <Cost cost, class T, class F, int N, class... X>
void elementwise(const Parallel& par, const RepeatedLayout<N>& layout, T* y, const F& f, const X*... x) {
  static_assert(N == sizeof...(X));
  const T* const data[] = {x...};
  detail::run_repeated<T, N>(par, cost, detail::elementwise_work<cost, T, F, N>(y, layout.numel(), f), data, layout);
}

}  // namespace deployops
