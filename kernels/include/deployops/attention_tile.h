// Attention for many queries: a tile has two vectors of them in its lanes, so the softmax over the keys and both
// products need nothing across the lanes, and keys and values are read as they lie in memory.
#pragma once

#include "deployops/attention_row.h"
#include "deployops/block_product.h"

namespace deployops {
namespace detail {

// Scores of a tile: a line of Q vectors for each key. `scale` is in memory because its register is needed.
template <int Q, class W>
__attribute__((noinline))
void tile_scores(const W* queries, const W* keys, int64_t count, int64_t width, const W* scale, W* scores) {
  block_product<Q>(count, queries, width, keys, width, int64_t(1),
                   [=](int64_t j, int q, vec<W> v) { store<W>(scores + (j * Q + q) * lanes<W>, v * *scale); });
}

// sums = sums·rescale + weights·values, a line of Q vectors for each place in a value.
template <int Q, class W>
__attribute__((noinline))
void tile_values(const W* weights, const W* values, int64_t count, int64_t width, const W* rescale, W* sums) {
  block_product<Q>(width, weights, count, values, int64_t(1), width, [=](int64_t e, int q, vec<W> v) {
    W* to = sums + (e * Q + q) * lanes<W>;
    store<W>(to, fma(load(to), load(rescale + q * lanes<W>), v));
  });
}

// Up to `rows_at_once` rows. They see the keys block by block, while these are in the caches.
template <class W>
class AttentionTiles {
 public:
  static constexpr int L = lanes<W>, tile_rows = 2 * L;

  // Numbers that the memory for the rows needs.
  static int64_t scratch_size(const AttentionCall<W>& call) {
    return padded(std::min(call.rows(), rows_at_once)) * (call.width + call.value_width);
  }

  // `for_a_row` has the size that AttentionRow asks for.
  AttentionTiles(const AttentionCall<W>& call, const AttentionRows& rows, const Converted<W>& converted,
                 W* scratch, W* for_a_row)
      : call_(call), rows_(rows), converted_(converted), queries_(scratch), for_a_row_(for_a_row) {
    const int64_t count = padded(rows.count);
    sums_ = queries_ + count * call.width;
    std::fill_n(maximum_, count, minus_infinity<W>);
    std::fill_n(sum_, count, W(0));
    std::fill_n(sums_, count * call.value_width, W(0));
    for (int64_t r = 0; r < count; ++r) {  // rows after the last see what it sees
      const int64_t row = rows.first + std::min(r, rows.count - 1);
      query_[r] = int_of<W>(std::min<int64_t>(call.query_of(row), std::numeric_limits<int32_t>::max()));
      bias_at_[r] = call.place_in(call.bias, rows.key_head, row);
      mask_at_[r] = call.place_in(call.mask, rows.key_head, row);
    }
  }

  void compute() {
    pack_queries();
    each_block_of_keys(call_, rows_, converted_, [&](int64_t first, int64_t count, const W* keys, const W* values) {
      for (int64_t row = 0; row < rows_.count; row += tile_rows) {
        if (vectors_of(row) == 2) {
          see<2>(row, first, count, keys, values);
        } else {
          see<1>(row, first, count, keys, values);
        }
      }
    });
    finish();
  }

 private:
  static int64_t padded(int64_t rows) { return (rows + tile_rows - 1) / tile_rows * tile_rows; }
  int vectors_of(int64_t tile) const { return rows_.count - tile > L ? 2 : 1; }

  // f(row, its place in a line of its tile, numbers in such a line, rows that there are) for each vector of rows
  template <class F>
  void each_vector(F&& f) {
    for (int64_t row = 0; row < rows_.count; row += L) {
      const int64_t tile = row / tile_rows * tile_rows;
      f(row, row - tile, int64_t(vectors_of(tile)) * L, int(std::min<int64_t>(L, rows_.count - row)));
    }
  }

  int64_t first_in_tensors() const { return rows_.key_head * call_.rows() + rows_.first; }

  void pack_queries() {
    const int64_t n = call_.width;
    const W* q = call_.q.read(first_in_tensors() * n, rows_.count * n, converted_.keys);
    each_vector([&](int64_t row, int64_t place, int64_t line, int there) {
      const W* from[L];
      for (int i = 0; i < there; ++i) from[i] = q + (row + i) * n;
      transpose_rows(from, there, n, queries_ + (row - place) * n + place, line, L);
    });
  }

  template <int Q>
  void see(int64_t row, int64_t first, int64_t count, const W* keys, const W* values) {
    alignas(64) W scores[keys_at_once * tile_rows], rescale[tile_rows];
    tile_scores<Q>(queries_ + row * call_.width, keys, count, call_.width, &call_.scale, scores);
    for (int q = 0; q < Q; ++q) weigh(row + q * L, first, count, Q * L, scores + q * L, rescale + q * L);
    tile_values<Q>(scores, values, count, call_.value_width, rescale, sums_ + row * call_.value_width);
  }

  // The scores of a vector of rows become weights. `line`: numbers from the scores of one key to those of the next.
  __attribute__((noinline))
  void weigh(int64_t row, int64_t first, int64_t count, int64_t line, W* scores, W* rescale) {
    const vec<W> never = broadcast(minus_infinity<W>);
    alignas(64) W lines[keys_at_once * L];
    if (call_.bias) {
      const int64_t step = read_lines(call_.bias, bias_at_ + row, first, count, lines);
      for (int64_t j = 0; j < count; ++j) {
        store<W>(scores + j * line, load(scores + j * line) + load(lines + j * step));
      }
    }
    if (call_.mask) {
      const int64_t step = read_lines(call_.mask, mask_at_ + row, first, count, lines);
      for (int64_t j = 0; j < count; ++j) {
        store<W>(scores + j * line, load(lines + j * step) != 0 ? load(scores + j * line) : never);
      }
    }
    // In most blocks, every key is in the past of every query.
    if (call_.is_causal && first + count - 1 > *std::min_element(query_ + row, query_ + row + L)) {
      vec<int_of<W>> query;
      std::memcpy(&query, query_ + row, sizeof query);
      for (int64_t j = 0; j < count; ++j) {
        store<W>(scores + j * line, query >= int_of<W>(first + j) ? load(scores + j * line) : never);
      }
    }

    const vec<W> before = load(maximum_ + row);
    vec<W> largest = before, other = before;
    int64_t j = 0;
    for (; j + 2 <= count; j += 2) {
      largest = larger_number(load(scores + j * line), largest);
      other = larger_number(load(scores + (j + 1) * line), other);
    }
    if (j < count) largest = larger_number(load(scores + j * line), largest);
    largest = larger_number(largest, other);
    const vec<W> subtracted = subtrahend(largest);
    const vec<W> shrink = deployops::exp_nonpositive(before - subtracted);
    vec<W> sum{};
    for (j = 0; j < count; ++j) {
      const vec<W> p = deployops::exp_nonpositive(load(scores + j * line) - subtracted);
      store<W>(scores + j * line, p);
      sum += p;
    }
    store<W>(maximum_ + row, largest);
    store<W>(sum_ + row, fma(load(sum_ + row), shrink, sum));
    store<W>(rescale, shrink);
  }

  // Numbers of a bias or mask: a line for each key, of the rows from `at` on. Returns the step between the lines.
  __attribute__((noinline))
  static int64_t read_lines(const ScoreTerm<W>& r, const int64_t* at, int64_t first, int64_t count, W* lines) {
    alignas(64) W buffer[L * keys_at_once];
    if (r.key == 0) {
      for (int i = 0; i < L; ++i) lines[i] = *r.numbers.read(at[i], 1, buffer);
      return 0;
    }
    if (r.query == 0 && r.head == 0) {  // the same for all rows
      const W* numbers = r.numbers.read(at[0] + first, count, buffer);
      for (int64_t j = 0; j < count; ++j) store<W>(lines + j * L, broadcast(numbers[j]));
      return L;
    }
    const W* from[L];
    for (int i = 0; i < L; ++i) from[i] = r.numbers.read(at[i] + first, count, buffer + i * keys_at_once);
    transpose_rows(from, L, count, lines, L, L);
    return L;
  }

  void finish() {
    const int64_t n = call_.value_width;
    W* y = call_.converts() ? converted_.values : call_.y + first_in_tensors() * n;
    bool again[rows_at_once];
    each_vector([&](int64_t row, int64_t place, int64_t line, int there) {
      W* sums = sums_ + (row - place) * n + place;
      const vec<W> sum = load(sum_ + row);
      const vec<W> factor = sum == 0 ? broadcast(call_.factor_of_nothing()) : W(1) / sum;
      vec<W> products{};  // 0, or NaN where a result is not finite
      for (int64_t e = 0; e < n; ++e) {
        const vec<W> v = load(sums + e * line) * factor;
        products = fma(v, vec<W>{}, products);
        store<W>(sums + e * line, v);
      }
      for (int64_t e = 0; e < n; e += L) {
        const W* from[L];
        const int columns = int(std::min<int64_t>(L, n - e));
        for (int k = 0; k < columns; ++k) from[k] = sums + (e + k) * line;
        transpose_rows(from, columns, there, y + row * n + e, n, columns);
      }
      for (int i = 0; i < there; ++i) again[row + i] = products[i] != 0 && sum[i] != 0 && is_finite(sum[i]);
    });
    if (call_.converts()) call_.write(y, first_in_tensors() * n, rows_.count * n, call_.narrow_y);
    for (int64_t r = 0; r < rows_.count; ++r) {
      if (!again[r]) continue;
      AttentionRow<W>(call_, rows_.key_head, rows_.first + r, converted_, for_a_row_).compute_again();
    }
  }

  const AttentionCall<W>& call_;
  const AttentionRows& rows_;
  const Converted<W> converted_;
  W *queries_, *for_a_row_, *sums_;
  alignas(64) W maximum_[rows_at_once + tile_rows], sum_[rows_at_once + tile_rows];
  int_of<W> query_[rows_at_once + tile_rows];
  int64_t bias_at_[rows_at_once + tile_rows], mask_at_[rows_at_once + tile_rows];
};

}  // namespace detail
}  // namespace deployops
