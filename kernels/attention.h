// Scaled dot product attention in one pass over the keys (online softmax: Milakov and Gimelshein 2018,
// arXiv:1805.02867; in blocks: Dao et al. 2022, arXiv:2205.14135). No matrix of all scores is kept.
//
// What 0 · ∞ and 0 · NaN are follows the formula, weights before values, although masked keys are mostly skipped:
// - Keys in the future of a whole block of queries are left out if their values are finite.
// - A row whose result is not finite, with finite weights, is computed again in the order of the formula.
#pragma once

#include <cmath>
#include <optional>

#include "deployops/attention_tile.h"
#include "deployops/parallel.h"

namespace deployops {

namespace detail {

// Writes y for some rows. `scratch` has the size that `attention_scratch` gives.
template <class W>
void attend(const AttentionCall<W>& call, AttentionRows rows, W* scratch) {
  Converted<W> converted{};
  if (call.converts()) {
    converted = {scratch, scratch + keys_at_once * call.width};
    scratch += keys_at_once * (call.width + call.value_width);
  }
  if (call.is_causal) {
    int64_t seen = 0;
    for (int64_t r = 0; r < rows.count; ++r) seen = std::max(seen, call.query_of(rows.first + r) + 1);
    if (seen < rows.keys && finite_values(call, rows.key_head, seen, converted)) rows.keys = seen;
  }
  if (!row_by_row(call)) {
    W* for_a_row = scratch + AttentionTiles<W>::scratch_size(call);
    return AttentionTiles<W>(call, rows, converted, scratch, for_a_row).compute();
  }
  std::optional<AttentionRow<W>> row[few_rows<W>];
  for (int64_t r = 0; r < rows.count; ++r) {
    row[r].emplace(call, rows.key_head, rows.first + r, converted, scratch + r * AttentionRow<W>::scratch_size(call));
  }
  each_block_of_keys(call, rows, converted, [&](int64_t first, int64_t count, const W* keys, const W* values) {
    for (int64_t r = 0; r < rows.count; ++r) row[r]->see(first, count, keys, values);
  });
  for (int64_t r = 0; r < rows.count; ++r) row[r]->finish();
}

// Whether the values of all keys from `first` on are finite.
template <class W>
bool finite_values(const AttentionCall<W>& call, int64_t key_head, int64_t first, const Converted<W>& converted) {
  const int64_t n = call.value_width;
  for (; first < call.keys; first += keys_at_once) {
    const int64_t count = std::min(keys_at_once, call.keys - first) * n;
    const W* values = call.v.read((key_head * call.keys + first) * n, count, converted.values);
    // v·0 is 0 or NaN
    if (row_sum<W>(count, [=](int64_t i, auto live) { return load(values + i, live) * W(0); }) != 0) return false;
  }
  return true;
}

template <class W>
int64_t attention_scratch(const AttentionCall<W>& call) {
  const int64_t converted = call.converts() ? keys_at_once * (call.width + call.value_width) : 0;
  const int64_t row = AttentionRow<W>::scratch_size(call), rows = call.rows();
  const int64_t used = row_by_row(call) ? row * rows : row + AttentionTiles<W>::scratch_size(call);
  return (converted + used + 15) / 16 * 16;
}

template <class W>
void attend_all(const Parallel& par, const AttentionCall<W>& call, int64_t batch) {
  // Few large parts, each with its own memory; their number depends on the shape only.
  const int64_t blocks_per_head = (call.rows() + rows_at_once - 1) / rows_at_once;
  const int64_t blocks = batch * call.key_heads * blocks_per_head;
  constexpr double least_products = 1 << 19, most_parts = 128;
  const double products = double(batch) * double(call.heads) * double(call.queries) * double(call.keys) *
                          double(call.width + call.value_width);
  const int64_t parts = std::clamp<int64_t>(int64_t(std::min(products / least_products, most_parts)), 1, blocks);
  const int64_t size = attention_scratch(call);
  auto compute = [&](int64_t part, W* scratch) __attribute__((noinline)) {
    for (int64_t b = blocks * part / parts; b < blocks * (part + 1) / parts; ++b) {
      const int64_t first = b % blocks_per_head * rows_at_once;
      attend(call, {b / blocks_per_head, first, std::min(rows_at_once, call.rows() - first), call.keys}, scratch);
    }
  };
  constexpr int64_t small = 16384 / sizeof(W);
  if (parts == 1 && size <= small) {
    alignas(64) W scratch[small];
    return compute(0, scratch);
  }
  const Scratch<W> scratch = par.scratch<W>(parts * size);
  par(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) compute(part, scratch.data() + part * size);
  });
}

__attribute__((noinline))
inline void check_attention(In<char> q, In<char> k, In<char> v) {
  for (auto [name, x] : {std::pair{"q", q}, std::pair{"k", k}, std::pair{"v", v}}) {
    require(x.rank == 4, name, " has ", x.rank, " dimensions; expected 4, (batch, heads, length, width)");
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

template <class T>
void attention(const Parallel& par, In<T> q, In<T> k, In<T> v, In<T> bias, In<bool> mask, bool is_causal,
               std::optional<double> scale, Out<T> y) {
  using W = wide_t<T>;
  using WideView = detail::WideView<W>;
  detail::check_attention(untyped(q), untyped(k), untyped(v));
  const std::array<int64_t, 4> scores{q.size(0), q.size(1), q.size(2), k.size(2)};
  detail::AttentionCall<W> call{};
  call.q = WideView::of(q.data);
  call.k = WideView::of(k.data);
  call.v = WideView::of(v.data);
  call.heads = q.size(1);
  call.key_heads = k.size(1);
  call.queries = q.size(2);
  call.keys = k.size(2);
  call.width = q.size(3);
  call.value_width = v.size(3);
  call.bias = detail::score_term<W>("bias", bias, scores);
  call.mask = detail::score_term<W>("mask", mask, scores);
  call.is_causal = is_causal;
  call.scale = W(scale ? *scale : 1 / std::sqrt(double(q.size(3))));
  if constexpr (std::is_same_v<T, W>) {
    call.y = y.data;
  } else {
    call.narrow_y = y.data;
    call.write = [](const W* from, int64_t at, int64_t count, void* to) {
      write_row(static_cast<T*>(to) + at, count, false, [from](int64_t i, auto live) { return load(from + i, live); });
    };
  }
  if (y.numel() == 0) return;
  if (call.keys == 0) {
    std::fill_n(y.data, y.numel(), T(0.0f));
    return;
  }
  detail::attend_all(par, call, q.size(0));
}

}  // namespace deployops
