// Attention for few queries (decoding), a row at a time: lanes are keys for the scores, then places in a value.
#pragma once

#include "deployops/attention_call.h"
#include "deployops/transpose.h"
#include "deployops/vector_math.h"

namespace deployops {
namespace detail {

// More rows than this are done in tiles in any case.
template <class W>
constexpr int64_t few_rows = lanes<W> / 2;

// Whether a row at a time is faster than tiles: what each key costs, in vector operations.
template <class W>
bool row_by_row(const AttentionCall<W>& call) {
  const int64_t width = call.width + call.value_width;
  return call.rows() <= few_rows<W> && call.rows() * (width / lanes<W> + 12) <= width + 16;
}

template <class W>
class AttentionRow {
 public:
  // Numbers that the memory for a row needs.
  static int64_t scratch_size(const AttentionCall<W>& call) { return padded(call.width) + padded(call.value_width); }

  AttentionRow(const AttentionCall<W>& call, int64_t key_head, int64_t row, const Converted<W>& converted, W* scratch)
      : call_(call), converted_(converted), key_head_(key_head), index_(call.query_of(row)) {
    at_ = key_head * call.rows() + row;
    bias_at_ = call.place_in(call.bias, key_head, row);
    mask_at_ = call.place_in(call.mask, key_head, row);
    query_ = call.q.read(at_ * call.width, call.width, scratch);
    sums_ = scratch + padded(call.width);
    std::fill_n(sums_, call.value_width, W(0));
  }

  // One pass: the sums over the keys seen so far are rescaled when a larger score comes (online softmax).
  void see(int64_t first, int64_t count, const W* keys, const W* values) {
    alignas(64) W scores[keys_at_once];
    const W m = std::max(maximum_, compute_scores(first, count, keys, scores));
    const W subtracted = m == minus_infinity<W> ? W(0) : m;
    const W rescale = deployops::exp_nonpositive(broadcast(maximum_ - subtracted))[0];
    sum_ = sum_ * rescale + weigh(count, subtracted, W(1), scores);
    maximum_ = m;
    add_values(count, scores, values, rescale);
  }

  void finish() {
    const W factor = sum_ == 0 ? call_.factor_of_nothing() : 1 / sum_;
    write(factor);
    if (sum_ == 0 || !is_finite(sum_)) return;
    const W products = row_sum<W>(call_.value_width, [&](int64_t i, auto live) {
      return load(sums_ + i, live) * factor * W(0);  // NaN where the result is not finite
    });
    if (products != 0) compute_again();
  }

  // Weights first, then their products with all values: by that it is defined what 0 · ∞ and sums beyond the range
  // give, and one pass takes them in another order. For a row whose weights are finite.
  __attribute__((noinline))
  void compute_again() {
    alignas(64) W scores[keys_at_once];
    W m = minus_infinity<W>;
    each_block([&](int64_t first, int64_t count) {
      m = std::max(m, compute_scores(first, count, read_keys(first, count), scores));
    });
    Total<W> total;
    each_block([&](int64_t first, int64_t count) {
      compute_scores(first, count, read_keys(first, count), scores);
      total.add(weigh(count, m, W(1), scores));
    });
    std::fill_n(sums_, call_.value_width, W(0));
    each_block([&](int64_t first, int64_t count) {
      compute_scores(first, count, read_keys(first, count), scores);
      weigh(count, m, 1 / total.value(), scores);
      add_values(count, scores, read_values(first, count), W(1));
    });
    write(W(1));
  }

 private:
  static constexpr int L = lanes<W>;
  static int64_t padded(int64_t n) { return (n + L - 1) / L * L; }

  template <class F>
  void each_block(F&& f) {
    for (int64_t first = 0; first < call_.keys; first += keys_at_once) {
      f(first, std::min(keys_at_once, call_.keys - first));
    }
  }

  const W* read_keys(int64_t first, int64_t count) const {
    return call_.k.read((key_head_ * call_.keys + first) * call_.width, count * call_.width, converted_.keys);
  }
  const W* read_values(int64_t first, int64_t count) const {
    const int64_t n = call_.value_width;
    return call_.v.read((key_head_ * call_.keys + first) * n, count * n, converted_.values);
  }

  // Query times the next keys, `there` of them, in the lanes.
  vec<W> dot_products(const W* keys, int there) const {
    constexpr int at_once = std::min(4, L);
    const int64_t n = call_.width;
    vec<W> sums[L];
    for (int j = 0; j < L; j += at_once) {
      const W* key[at_once];
      vec<W> some[at_once] = {};
      for (int k = 0; k < at_once; ++k) key[k] = keys + std::min(j + k, there - 1) * n;  // the last one again after it
      auto add = [&](int64_t i, auto live, auto&& chosen) {
        const vec<W> q = chosen(load(query_ + i, live));
#pragma GCC unroll 4
        for (int k = 0; k < at_once; ++k) some[k] = fma(q, chosen(load(key[k] + i, live)), some[k]);
      };
      auto all = [](vec<W> v) { return v; };
      if (n < L) {
        add(0, FirstLanes{int(n)}, all);
      } else {
        for (int64_t i = 0; i + L <= n; i += L) add(i, AllLanes{}, all);
        const vec<int_of<W>> new_ones = lane_numbers<int_of<W>>() >= int_of<W>(L - n % L);
        if (n % L != 0) add(n - L, AllLanes{}, [&](vec<W> v) { return new_ones ? v : vec<W>{}; });
      }
#pragma GCC unroll 4
      for (int k = 0; k < at_once; ++k) sums[j + k] = some[k];
    }
    return sums_of_each(sums);
  }

  // Scores of keys first … first + count, and −∞ in the lanes after them. Returns the largest, NaN left out.
  __attribute__((noinline))
  W compute_scores(int64_t first, int64_t count, const W* keys, W* scores) const {
    alignas(64) W bias_buffer[keys_at_once], mask_buffer[keys_at_once];
    // Where a bias or mask repeats along the keys, one number of it is read.
    auto numbers = [&](const ScoreTerm<W>& r, int64_t at, W* buffer) {
      return r ? r.numbers.read(at + first * r.key, r.key ? count : 1, buffer) : nullptr;
    };
    const W* bias = numbers(call_.bias, bias_at_, bias_buffer);
    const W* mask = numbers(call_.mask, mask_at_, mask_buffer);
    const vec<W> never = broadcast(minus_infinity<W>);
    const vec<int_of<W>> lane = lane_numbers<int_of<W>>();
    vec<W> m = never;
    for (int64_t j = 0; j < count; j += L) {
      const int there = int(std::min<int64_t>(L, count - j));
      auto at_keys = [&](const ScoreTerm<W>& r, const W* p) {
        return r.key == 0 ? broadcast(*p) : there == L ? load(p + j) : load(p + j, there);
      };
      vec<W> s = dot_products(keys + j * call_.width, there) * call_.scale;
      if (bias != nullptr) s += at_keys(call_.bias, bias);
      if (mask != nullptr) s = at_keys(call_.mask, mask) != 0 ? s : never;
      if (call_.is_causal) s = lane <= int_of<W>(std::clamp<int64_t>(index_ - first - j, -1, L)) ? s : never;
      s = lane < int_of<W>(there) ? s : never;
      store<W>(scores + j, s);
      m = larger_number(s, m);
    }
    return largest_number(m);
  }

  // Scores become weights, exp(score − m)·factor. Returns the sum of the exps.
  __attribute__((noinline))
  static W weigh(int64_t count, W m, W factor, W* scores) {
    vec<W> sums{};
    for (int64_t j = 0; j < count; j += L) {
      const vec<W> p = deployops::exp_nonpositive(load(scores + j) - m);
      store<W>(scores + j, p * factor);
      sums += p;
    }
    return sum_of_lanes(sums);
  }

  // sums = sums·rescale + Σ weights·values
  __attribute__((noinline))
  void add_values(int64_t count, const W* weights, const W* values, W rescale) {
    const int64_t n = call_.value_width;
    auto added = [&](int64_t e, auto live, auto vectors) {
      std::array<vec<W>, vectors> sums{};
      for (int64_t j = 0; j < count; ++j) {
        const vec<W> p = broadcast(weights[j]);
        for (int k = 0; k < vectors; ++k) sums[k] = fma(p, load(values + j * n + e + k * L, live), sums[k]);
      }
      for (int k = 0; k < vectors; ++k) sums[k] = fma(load(sums_ + e + k * L), broadcast(rescale), sums[k]);
      return sums;
    };
    using One = std::integral_constant<int, 1>;
    using Four = std::integral_constant<int, 4>;
    if (n < L) {
      if (n > 0) store<W>(sums_, added(0, FirstLanes{int(n)}, One{})[0]);
      return;
    }
    // The last vector overlaps the one before if it has to, so it is computed before that one is written.
    const vec<W> last = n % L ? added(n - L, AllLanes{}, One{})[0] : vec<W>{};
    int64_t e = 0;
    for (; e + 4 * L <= n; e += 4 * L) {
      const auto sums = added(e, AllLanes{}, Four{});
      for (int k = 0; k < 4; ++k) store<W>(sums_ + e + k * L, sums[k]);
    }
    for (; e + L <= n; e += L) store<W>(sums_ + e, added(e, AllLanes{}, One{})[0]);
    if (n % L) store<W>(sums_ + n - L, last);
  }

  __attribute__((noinline))
  void write(W factor) {
    const int64_t n = call_.value_width;
    W* to = call_.converts() ? converted_.values : call_.y + at_ * n;
    write_row(to, n, false, [&](int64_t i, auto live) { return load(sums_ + i, live) * factor; });
    if (call_.converts()) call_.write(to, at_ * n, n, call_.narrow_y);
  }

  const AttentionCall<W>& call_;
  const Converted<W> converted_;
  int64_t key_head_, index_, at_, bias_at_, mask_at_;
  const W* query_;
  W* sums_;
  W maximum_ = minus_infinity<W>, sum_ = 0;
};

}  // namespace detail
}  // namespace deployops
