// Shape rules: from the sizes of the inputs to those of an output. Sizes may be unknown while a model is loaded.
#pragma once

#include <algorithm>

#include "deployops/operator_call.h"

namespace deployops {

struct Shape {
  int rank = 0;
  int64_t sizes[max_rank];  // −1: unknown
};

// A size in a formula. What is made of an unknown one is unknown; intermediate results may be negative (h − 3).
struct Size {
  static constexpr int64_t unknown = INT64_MIN;
  int64_t value;
  explicit constexpr Size(int64_t v) : value(v) {}
  static constexpr Size of(const TensorRef& t, int dim) { return Size(t.sizes[dim] < 0 ? unknown : t.sizes[dim]); }
};

namespace detail {
template <class F>
constexpr Size combine(Size a, Size b, F f) {
  return Size(a.value == Size::unknown || b.value == Size::unknown ? Size::unknown : f(a.value, b.value));
}
}  // namespace detail

constexpr Size operator+(Size a, Size b) {
  return detail::combine(a, b, [](int64_t x, int64_t y) { return x + y; });
}
constexpr Size operator-(Size a, Size b) {
  return detail::combine(a, b, [](int64_t x, int64_t y) { return x - y; });
}
constexpr Size operator*(Size a, Size b) {
  return detail::combine(a, b, [](int64_t x, int64_t y) { return x * y; });
}
constexpr Size larger(Size a, Size b) {
  return detail::combine(a, b, [](int64_t x, int64_t y) { return x > y ? x : y; });
}
constexpr Size smaller(Size a, Size b) {
  return detail::combine(a, b, [](int64_t x, int64_t y) { return x < y ? x : y; });
}
// As Python's // and %: rounded down. A division by zero is unknown, and then refused as a size.
constexpr Size floor_divide(Size a, Size b) {
  if (b.value == 0) return Size(Size::unknown);
  return detail::combine(a, b, [](int64_t x, int64_t y) { return x / y - ((x % y != 0) & ((x < 0) != (y < 0))); });
}
constexpr Size modulo(Size a, Size b) { return a - floor_divide(a, b) * b; }

inline Shape shape_like(const TensorRef& t) {
  require(t.rank >= 0, "the input whose shape the output takes is absent");
  Shape shape;
  shape.rank = t.rank;
  std::copy(t.sizes, t.sizes + t.rank, shape.sizes);
  return shape;
}

inline Shape shape_of(std::initializer_list<Size> sizes) {
  Shape shape;
  for (Size s : sizes) shape.sizes[shape.rank++] = s.value == Size::unknown ? -1 : s.value;
  return shape;
}

// What the tensors broadcast to, dims aligned from the last, size 1 repeats.
inline Shape shape_broadcast(std::initializer_list<const TensorRef*> tensors) {
  Shape shape;
  for (const TensorRef* t : tensors) shape.rank = std::max(shape.rank, int(t->rank));
  std::fill(shape.sizes, shape.sizes + shape.rank, int64_t(1));
  for (const TensorRef* t : tensors) {
    for (int d = 0; d < t->rank; ++d) {
      int64_t& size = shape.sizes[shape.rank - t->rank + d];
      const int64_t other = t->sizes[d];
      if (other == 1 || other == size) continue;
      // an unknown size may still turn out as 1: the known one beside it is then the result, if it is not 1
      if (other < 0) {
        if (size == 1) size = -1;
      } else {
        require(size == 1 || size < 0, "dimension ", d - t->rank, " has size ", other, " and ", size,
                ", which do not broadcast");
        size = other;
      }
    }
  }
  return shape;
}

}  // namespace deployops
