// Shape rules: from the sizes of the inputs to those of an output. Sizes may be unknown while a model is loaded.
#pragma once

#include <algorithm>

#include "deployops/operator_call.h"

namespace deployops {

struct Shape {
  int rank = 0;
  int64_t sizes[max_rank];  // see `is_unknown`

  Shape() = default;
  Shape(const Shape& other) { *this = other; }
  // Only what there is: most tensors have few dims.
  Shape& operator=(const Shape& other) {
    rank = other.rank;
    for (int d = 0; d < rank; ++d) sizes[d] = other.sizes[d];
    return *this;
  }
};

// Unknown sizes are numbers that no arithmetic on sizes reaches. The smallest one is an unknown size without a name;
// the others stand each for a name of their own (`n`), and are kept where a size is passed on as it is.
constexpr int64_t nameless_size = INT64_MIN;
constexpr int64_t named_size(int64_t index) { return INT64_MIN + 1 + index; }
constexpr bool is_unknown(int64_t size) { return size < INT64_MIN / 2; }

// A size in a formula. What is computed from an unknown one is unknown; intermediate results may be negative (h − 3).
struct Size {
  int64_t value;
  explicit constexpr Size(int64_t v) : value(v) {}
  static constexpr Size of(const TensorRef& t, int dim) { return Size(t.sizes[dim]); }
};

namespace detail {
template <class F>
constexpr Size combine(Size a, Size b, F f) {
  return Size(is_unknown(a.value) || is_unknown(b.value) ? nameless_size : f(a.value, b.value));
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
  if (b.value == 0) return Size(nameless_size);
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
  for (Size s : sizes) shape.sizes[shape.rank++] = s.value;
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
      if (is_unknown(other)) {
        size = size == 1 ? other : is_unknown(size) ? nameless_size : size;
      } else {
        require(size == 1 || is_unknown(size), "dimension ", d - t->rank, " has size ", other, " and ", size,
                ", which do not broadcast");
        size = other;
      }
    }
  }
  return shape;
}

}  // namespace deployops
