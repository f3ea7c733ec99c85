// Shape rules over TensorRT's expressions: the same formulas as in deployops/shape.h, with sizes that are known only
// when the engine runs. What is constant is computed here, so that TensorRT sees plain numbers.
#pragma once

#include <initializer_list>

#include "tensorrt.h"
#include "deployops/error.h"

namespace deployops::trt {

using nvinfer1::DimensionOperation;
using nvinfer1::DimsExprs;
using nvinfer1::IDimensionExpr;
using nvinfer1::IExprBuilder;

// What a shape rule sees of an input. Of a shape input, its values are the dims.
struct SymbolicTensor {
  int rank = -1;  // −1: absent
  const DimsExprs* dims = nullptr;
  IExprBuilder* builder = nullptr;
  const int64_t* numbers = nullptr;  // instead of expressions, where an engine runs
};

// A size in a formula: a number, or an expression of the builder.
class Size {
 public:
  Size() = default;
  explicit Size(int64_t value) : value_(value) {}
  static Size of(const SymbolicTensor& t, int dim) {
    if (t.numbers != nullptr) return Size(t.numbers[dim]);
    const IDimensionExpr* e = t.dims->d[dim];
    Size size(e->isConstant() ? e->getConstantValue() : 0);
    if (!e->isConstant()) {
      size.expression_ = e;
      size.builder_ = t.builder;
    }
    return size;
  }

  bool is_constant() const { return expression_ == nullptr; }
  bool is(int64_t value) const { return is_constant() && value_ == value; }
  int64_t value() const { return value_; }
  bool same_as(const Size& other) const { return !is_constant() && expression_ == other.expression_; }
  const IDimensionExpr* in(IExprBuilder& builder) const {
    const IDimensionExpr* e = is_constant() ? builder.constant(value_) : expression_;
    require(e != nullptr, "TensorRT does not take the size ", value_);
    return e;
  }

  template <class F>
  static Size combine(DimensionOperation operation, const Size& a, const Size& b, F&& of_numbers) {
    if (a.is_constant() && b.is_constant()) return Size(of_numbers(a.value_, b.value_));
    Size result;
    result.builder_ = a.is_constant() ? b.builder_ : a.builder_;
    result.expression_ = result.builder_->operation(operation, *a.in(*result.builder_), *b.in(*result.builder_));
    require(result.expression_ != nullptr, "TensorRT does not take a formula of the output's shape");
    return result;
  }

 private:
  int64_t value_ = 0;
  const IDimensionExpr* expression_ = nullptr;
  IExprBuilder* builder_ = nullptr;
};

inline Size operator+(const Size& a, const Size& b) {
  return Size::combine(DimensionOperation::kSUM, a, b, [](int64_t x, int64_t y) { return x + y; });
}
inline Size operator-(const Size& a, const Size& b) {
  return Size::combine(DimensionOperation::kSUB, a, b, [](int64_t x, int64_t y) { return x - y; });
}
inline Size operator*(const Size& a, const Size& b) {
  return Size::combine(DimensionOperation::kPROD, a, b, [](int64_t x, int64_t y) { return x * y; });
}
inline Size larger(const Size& a, const Size& b) {
  return Size::combine(DimensionOperation::kMAX, a, b, [](int64_t x, int64_t y) { return x > y ? x : y; });
}
inline Size smaller(const Size& a, const Size& b) {
  return Size::combine(DimensionOperation::kMIN, a, b, [](int64_t x, int64_t y) { return x < y ? x : y; });
}
// Rounded down.
inline Size floor_divide(const Size& a, const Size& b) {
  require(!b.is(0), "a size of the output is divided by a size that is 0");
  return Size::combine(DimensionOperation::kFLOOR_DIV, a, b, [](int64_t x, int64_t y) {
    return x / y - int64_t((x % y != 0) && ((x < 0) != (y < 0)));
  });
}
inline Size modulo(const Size& a, const Size& b) { return a - floor_divide(a, b) * b; }

// What two sizes broadcast to: the other one where one is 1. An empty dim stays empty, which the larger one would not.
inline Size broadcast(const Size& a, const Size& b) {
  if (a.is(1) || a.same_as(b)) return b;
  if (b.is(1)) return a;
  if (a.is_constant() && b.is_constant()) {
    require(a.value() == b.value(), "sizes ", a.value(), " and ", b.value(), " do not broadcast");
    return a;
  }
  if (a.is_constant() || b.is_constant()) return a.is_constant() ? a : b;  // not 1: the other one is 1 or the same
  const Size a_is_one = Size::combine(DimensionOperation::kEQUAL, a, Size(1), [](int64_t, int64_t) { return 0; });
  return a_is_one * b + (Size(1) - a_is_one) * a;
}

struct SymbolicShape {
  int rank = 0;
  Size sizes[nvinfer1::Dims::MAX_DIMS];
  int64_t numbers[nvinfer1::Dims::MAX_DIMS] = {};  // the same, where they are all known
};

inline SymbolicShape shape_like(const SymbolicTensor& t) {
  require(t.rank >= 0, "the input whose shape the output takes is absent");
  SymbolicShape shape;
  shape.rank = t.rank;
  for (int d = 0; d < t.rank; ++d) shape.sizes[d] = Size::of(t, d);
  return shape;
}

inline SymbolicShape shape_of(std::initializer_list<Size> sizes) {
  require(sizes.size() <= size_t(nvinfer1::Dims::MAX_DIMS), "the output would have ", sizes.size(),
          " dimensions; TensorRT has at most ", int(nvinfer1::Dims::MAX_DIMS));
  SymbolicShape shape;
  for (const Size& s : sizes) shape.sizes[shape.rank++] = s;
  return shape;
}

// Dims aligned from the last.
inline SymbolicShape shape_broadcast(std::initializer_list<const SymbolicTensor*> tensors) {
  SymbolicShape shape;
  for (const SymbolicTensor* t : tensors) shape.rank = t->rank > shape.rank ? t->rank : shape.rank;
  for (int d = 0; d < shape.rank; ++d) shape.sizes[d] = Size(1);
  for (const SymbolicTensor* t : tensors) {
    for (int d = 0; d < t->rank; ++d) {
      Size& size = shape.sizes[shape.rank - t->rank + d];
      size = broadcast(size, Size::of(*t, d));
    }
  }
  return shape;
}

}  // namespace deployops::trt
