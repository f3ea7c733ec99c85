// One call of attention, as its two ways of computing (attention_tile.h, attention_row.h) see it.
//
// The heads of q that share a key head lie behind one another, so a key head has `rows` queries in one row-major
// matrix: the queries of the first of these heads, then those of the second, …
//
// Only what reads and writes tensors knows their dtype; all else is compiled once for float and once for double.
#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "deployops/row_sums.h"
#include "deployops/untyped.h"

namespace deployops {
namespace detail {

constexpr int64_t keys_at_once = 64;
constexpr int64_t rows_at_once = 64;  // one block of rows fits in the memory of one block of keys

// A tensor whose numbers are read as W.
template <class W>
struct WideView {
  const void* data = nullptr;
  const W* (*reader)(const void* data, int64_t at, int64_t count, W* buffer) = nullptr;

  // `count` numbers from `at` on: where they lie, or converted into `buffer`.
  const W* read(int64_t at, int64_t count, W* buffer) const { return reader(data, at, count, buffer); }

  template <class T>
  static WideView of(const T* data) {
    return {data, [](const void* from, int64_t at, int64_t count, [[maybe_unused]] W* buffer) -> const W* {
              const T* p = static_cast<const T*>(from) + at;
              if constexpr (std::is_same_v<T, W>) {
                return p;
              } else if constexpr (std::is_same_v<T, bool>) {
                std::copy(p, p + count, buffer);
                return buffer;
              } else {
                write_row(buffer, count, false, [p](int64_t i, auto live) { return load(p + i, live); });
                return buffer;
              }
            }};
  }
};

// A bias or mask as (batch, heads, queries, keys): the step to the next number along each, 0 where it repeats.
template <class W>
struct ScoreTerm {
  bool present = false;
  WideView<W> numbers;
  int64_t batch = 0, head = 0, query = 0, key = 0;
  explicit operator bool() const { return present; }
};

__attribute__((noinline))
inline std::array<int64_t, 4> steps_in_scores(const char* name, In<char> x, const std::array<int64_t, 4>& scores) {
  require(x.rank <= 4, name, " has ", x.rank, " dimensions; expected at most 4");
  std::array<int64_t, 4> steps{};
  bool fits = true;
  for (int64_t d = 3, step = 1; d >= 4 - x.rank; --d) {
    const int64_t size = x.sizes[d - (4 - x.rank)];
    fits &= size == 1 || size == scores[d];
    steps[d] = size == 1 ? 0 : step;
    step *= size;
  }
  require(fits, name, " is ", x, " and does not broadcast to (batch, heads of q, length of q, length of k) = (",
          scores[0], ", ", scores[1], ", ", scores[2], ", ", scores[3], ")");
  return steps;
}

template <class W, class T>
ScoreTerm<W> score_term(const char* name, In<T> x, const std::array<int64_t, 4>& scores) {
  if (!x) return {};
  const std::array<int64_t, 4> step = steps_in_scores(name, untyped(x), scores);
  return {true, WideView<W>::of(x.data), step[0], step[1], step[2], step[3]};
}

template <class W>
struct AttentionCall {
  WideView<W> q, k, v;
  W* y;  // null where y is of another dtype: then `write` puts numbers there
  void* narrow_y;
  void (*write)(const W* from, int64_t at, int64_t count, void* narrow_y);
  int64_t heads, key_heads, queries, keys, width, value_width;
  ScoreTerm<W> bias, mask;
  bool is_causal;
  W scale;

  bool converts() const { return y == nullptr; }
  // Rows of each key head.
  int64_t rows() const { return heads / key_heads * queries; }
  int64_t query_of(int64_t row) const { return row % queries; }
  int64_t place_in(const ScoreTerm<W>& r, int64_t key_head, int64_t row) const {
    const int64_t head = key_head % key_heads * (heads / key_heads) + row / queries;
    return key_head / key_heads * r.batch + head * r.head + query_of(row) * r.query;
  }
  // What the weightless values of a row without a score above −∞ are multiplied by: with a bias or a mask it gives
  // zeros, else NaN.
  W factor_of_nothing() const { return bias || mask ? W(1) : std::numeric_limits<W>::quiet_NaN(); }
};

// `count` rows of one key head (of batch · key heads). Keys from `keys` on count for none of them.
struct AttentionRows {
  int64_t key_head, first, count, keys;
};

// Memory for the rows and blocks of keys and values of other dtypes.
template <class W>
struct Converted {
  W *keys, *values;
};

// f(first key, count, their keys, their values) for each block of keys that count for the rows.
template <class W, class F>
DEPLOYOPS_INLINE void each_block_of_keys(const AttentionCall<W>& call, const AttentionRows& rows,
                                         const Converted<W>& converted, F&& f) {
  for (int64_t first = 0; first < rows.keys; first += keys_at_once) {
    const int64_t count = std::min(keys_at_once, rows.keys - first), at = rows.key_head * call.keys + first;
    f(first, count, call.k.read(at * call.width, count * call.width, converted.keys),
      call.v.read(at * call.value_width, count * call.value_width, converted.values));
  }
}

template <class W>
constexpr W minus_infinity = -std::numeric_limits<W>::infinity();

// What exp's argument is taken from: the maximum, or where there is none yet, anything but −∞ (−∞ − −∞ is NaN).
template <class V>
DEPLOYOPS_INLINE V subtrahend(V maximum) {
  return maximum == broadcast(minus_infinity<element_t<V>>) ? V{} : maximum;
}

}  // namespace detail
}  // namespace deployops
