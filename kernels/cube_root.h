// The real cube root: correctly rounded, in double at most 0.5001 ULP off.
#pragma once

#include "deployops/elementwise.h"
#include "deployops/tensor.h"
#include "deployops/vector_math.h"

namespace deployops {

template <class T>
void cube_root(const Parallel& par, In<T> x, Out<T> y) {
  using W = wide_t<T>;
  elementwise<Cost::arithmetic>(par, y.data, x.numel(), [](vec<W> v) { return cbrt<T>(v); }, x.data);
}

}  // namespace deployops
