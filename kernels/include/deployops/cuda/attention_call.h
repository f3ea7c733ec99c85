// One call of attention, as its kernel sees it.
//
// The heads of q that share a key head lie behind one another, so a key head has `rows` queries in one row-major matrix:
// those of the first of these heads, then those of the second, …
#pragma once

#include "deployops/cuda/types.h"
#include "deployops/untyped.h"

namespace deployops {
namespace detail {

// A bias or mask as (batch, heads, queries, keys): the step to the next number along each, 0 where it repeats.
template <class T>
struct ScoreTerm {
  const T* data = nullptr;  // null: there is none
  int64_t batch = 0, head = 0, query = 0, key = 0;
};

template <class T>
struct AttentionCall {
  const T *q, *k, *v;
  T* y;
  int64_t heads, key_heads, queries, keys, width, value_width;
  int64_t jobs;  // (batch, key head)
  ScoreTerm<T> bias;
  ScoreTerm<bool> mask;
  bool is_causal;
  bool score_packs, value_packs;  // rows of q and k, of v and y, are whole 16-byte packs
  wide_t<T> scale;

  // Rows of each key head.
  __host__ __device__ int64_t rows() const { return heads / key_heads * queries; }

  template <class E>
  __device__ int64_t place_in(const ScoreTerm<E>& term, int64_t key_head, int64_t row) const {
    const int64_t head = key_head % key_heads * (heads / key_heads) + row / queries;
    return key_head / key_heads * term.batch + head * term.head + row % queries * term.query;
  }
};

template <class T>
ScoreTerm<T> score_term(const char* name, In<T> x, const int64_t (&scores)[4]) {
  if (!x) return {};
  require(x.rank <= 4, name, " has ", x.rank, " dimensions; expected at most 4");
  int64_t steps[4] = {};
  bool fits = true;
  for (int64_t d = 3, step = 1; d >= 4 - x.rank; --d) {
    const int64_t size = x.sizes[d - (4 - x.rank)];
    fits &= size == 1 || size == scores[d];
    steps[d] = size == 1 ? 0 : step;
    step *= size;
  }
  require(fits, name, " is ", x, " and does not broadcast to (batch, heads of q, length of q, length of k) = (",
          scores[0], ", ", scores[1], ", ", scores[2], ", ", scores[3], ")");
  return {x.data, steps[0], steps[1], steps[2], steps[3]};
}

inline void check_attention(In<char> q, In<char> k, In<char> v) {
  const In<char> all[] = {q, k, v};
  for (int i = 0; i < 3; ++i) {
    require(all[i].rank == 4, "qkv"[i], " has ", all[i].rank, " dimensions; expected 4, (batch, heads, length, width)");
  }
  const char* wrong = nullptr;
  auto check = [&](bool holds, const char* otherwise) {
    if (!holds && wrong == nullptr) wrong = otherwise;
  };
  check(k.size(0) == q.size(0) && v.size(0) == q.size(0), "the batch sizes differ");
  check(k.size(3) == q.size(3), "q and k differ in width");
  check(q.size(3) >= 1, "q has width 0");
  check(v.size(2) == k.size(2), "k and v differ in length");
  check(v.size(1) == k.size(1), "k and v differ in heads");
  check(k.size(1) >= 1, "there are no heads");
  check(k.size(1) < 1 || q.size(1) % k.size(1) == 0, "the heads of q are no multiple of those of k and v");
  require(wrong == nullptr, "q is ", q, ", k ", k, ", v ", v, ": ", wrong ? wrong : "");
}

}  // namespace detail
}  // namespace deployops
