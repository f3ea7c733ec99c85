// The logistic function with relative accuracy on both sides: at most 2.5 ULP off, 0.55 in halves.
#pragma once

#include "deployops/elementwise.h"
#include "deployops/tensor.h"
#include "deployops/vector_math.h"

namespace deployops {

template <class T>
void sigmoid(const Parallel& par, In<T> x, Out<T> y) {
  using W = wide_t<T>;
  elementwise<Cost::arithmetic>(par, y.data, x.numel(), [](vec<W> v) { return logistic<T>(v); }, x.data);
}

}  // namespace deployops
