// Operands that repeat along some dims of an output, for a loop that reads contiguous elements or one number.
//
// Where the innermost dimension is long, a piece of the output is a row of it: an operand is contiguous there, or one
// number. Else what repeats is written out for a piece of the output, in a table that stays in the first cache.
#pragma once

#include <algorithm>
#include <array>

#include "deployops/simd.h"
#include "deployops/tensor.h"

namespace deployops {

// The dims of an output, the outermost first, and which of N operands have each of them; the others repeat along it.
template <int N>
class RepeatedLayout {
 public:
  // Adds an inner dimension; `along` says which operands have it.
  __attribute__((noinline)) void dimension(int64_t size, const std::array<bool, N>& along) {
    numel_ *= size;
    if (size == 1) return;
    // Neighbouring dims that the same operands have are one.
    if (rank_ > 0 && along_[rank_ - 1] == along) {
      sizes_[rank_ - 1] *= size;
    } else {
      sizes_[rank_] = size;
      along_[rank_++] = along;
    }
  }
  // Whether every operand has every dimension.
  bool repeats_nothing() const {
    return rank_ == 0 || (rank_ == 1 && std::find(along_[0].begin(), along_[0].end(), false) == along_[0].end());
  }
  int rank() const { return rank_; }
  int64_t numel() const { return numel_; }
  int64_t size(int d) const { return sizes_[d]; }
  bool along(int d, int operand) const { return along_[d][size_t(operand)]; }

 private:
  int rank_ = 0;
  int64_t numel_ = 1;
  int64_t sizes_[max_rank];
  std::array<bool, N> along_[max_rank];
};

// The dims that two tensors broadcast to as in torch: aligned from the last, size 1 repeats.
template <class T>
RepeatedLayout<2> broadcast_layout(In<T> x, In<T> y) {
  RepeatedLayout<2> layout;
  const int rank = std::max(x.rank, y.rank);
  require(rank <= max_rank, "x has ", x.rank, " dimensions and y ", y.rank, "; at most ", max_rank);
  for (int d = 0; d < rank; ++d) {
    const int64_t a = d < rank - x.rank ? 1 : x.sizes[d - (rank - x.rank)];
    const int64_t b = d < rank - y.rank ? 1 : y.sizes[d - (rank - y.rank)];
    require(a == b || a == 1 || b == 1, "x is ", x, ", y is ", y, "; expected shapes that broadcast");
    layout.dimension(a == 1 ? b : a, {a != 1, b != 1});
  }
  return layout;
}

// Elements of an operand for a piece of the output: contiguous, or all the same.
template <class T>
struct Piece {
  const T* first;
  int64_t mask;  // of an index: −1, or 0 where they are the same; a vector of them is at `first` then
};

// Where an operand of a layout is, for an element of the output. The same code for every dtype.
class RepeatedIndex {
 public:
  template <int N>
  __attribute__((noinline)) void set(const RepeatedLayout<N>& layout, int operand) {
    // There are two dims at least; those that lack are of size 1.
    rank_ = std::max(layout.rank(), 2);
    const int lacking = rank_ - layout.rank();
    int64_t stride = 1, inner = 1;
    for (int d = rank_ - 1; d >= 0; --d) {
      const bool there = d >= lacking, along = there && layout.along(d - lacking, operand);
      sizes_[d] = there ? layout.size(d - lacking) : 1;
      strides_[d] = along ? stride : 0;
      inner_[d] = inner;
      inner *= sizes_[d];
      if (along) {
        stride *= sizes_[d];
        period_ = inner;
      } else if (there) {
        contiguous_ = false;
      }
    }
    numel_ = inner;
  }

  // Goes to element `first` of the output.
  __attribute__((noinline)) void start(int64_t first) {
    offset_ = 0;
    for (int d = 0; d < rank_; ++d) {
      index_[d] = first / inner_[d] % sizes_[d];
      offset_ += index_[d] * strides_[d];
    }
  }

 protected:
  // On to the next row; the offset of where it was.
  DEPLOYOPS_INLINE int64_t next_row() {
    const int64_t offset = offset_;
    const int last = rank_ - 1;
    offset_ -= index_[last] * strides_[last];
    index_[last] = 0;
    count_up(last - 1);
    return offset;
  }

  // Dimension d and, where it is through, those outside it.
  DEPLOYOPS_INLINE void count_up(int d) {
#pragma GCC unroll 1
    for (; d >= 0; --d) {
      offset_ += strides_[d];
      if (++index_[d] < sizes_[d]) break;
      offset_ -= sizes_[d] * strides_[d];
      index_[d] = 0;
    }
  }

  bool contiguous_ = true;
  int rank_;
  int64_t numel_, period_ = 1, offset_;
  int64_t sizes_[max_rank], inner_[max_rank], strides_[max_rank], index_[max_rank];
};

// One operand of a layout, piece after piece.
template <class T>
class Repeated : public RepeatedIndex {
 public:
  static constexpr int64_t block = 4096 / int64_t(sizeof(T));  // the most elements in a piece that is no row

  template <int N>
  void set(const RepeatedLayout<N>& layout, int operand, const T* data) {
    data_ = data;
    RepeatedIndex::set(layout, operand);
  }

  // The rest of the row, and on to the next one.
  __attribute__((noinline)) Piece<T> row() {
    const T* const first = data_ + next_row();
    return strides_[rank_ - 1] == 0 ? same(first) : Piece<T>{first, -1};
  }

  // `count` elements, at most `block`, for those of the output from `first` on.
  __attribute__((noinline)) Piece<T> at(int64_t first, int64_t count) {
    if (contiguous_) return {data_ + first, -1};
    if (period_ > longest_period) {
      fill(first, count);
      return {table_, -1};
    }
    if (!filled_) fill(0, std::min(numel_, period_ + block));
    filled_ = true;
    return {table_ + first % period_, -1};
  }

 private:
  static constexpr int64_t longest_period = block;
  static constexpr int64_t step = vector_bytes / int64_t(sizeof(T));

  DEPLOYOPS_INLINE Piece<T> same(const T* value) {
    fill_run(table_, *value, step);
    return {table_, 0};
  }

  __attribute__((noinline)) void fill(int64_t first, int64_t count) {
    start(first);
    const int last = rank_ - 1, row = rank_ - 2;
    for (T *to = table_, *end = table_ + count; to < end; count_up(row - 1)) {
      const T* from = data_ + offset_;
      int64_t skipped = index_[last];
      for (int64_t i = index_[row]; i < sizes_[row] && to < end; ++i) {
        const int64_t run = std::min(sizes_[last] - skipped, int64_t(end - to));
        if (strides_[last] == 0) {
          fill_run(to, *from, run);
        } else {
          std::copy_n(from, run, to);
          from -= skipped;
        }
        to += run;
        from += strides_[row];
        skipped = 0;
      }
      offset_ -= index_[last] * strides_[last] + index_[row] * strides_[row];
      index_[last] = index_[row] = 0;
    }
  }

  // Whole steps are written, the last one beyond the run: what comes next is written over it.
  static DEPLOYOPS_INLINE void fill_run(T* to, T value, int64_t run) {
    // As one vector: what is written in parts is read as a whole only when all of them have arrived in the cache.
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
    Bits bits;
    std::memcpy(&bits, &value, sizeof bits);
    const auto values = bits - typename detail::VecOf<Bits, int(step)>::type{};
    for (int64_t i = 0; i < run; i += step) std::memcpy(to + i, &values, sizeof values);
  }

  const T* data_;
  bool filled_ = false;
  alignas(64) T table_[block + longest_period + step];
};

}  // namespace deployops
