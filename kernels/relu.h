// max(x, 0). A NaN is not larger than 0, nor smaller: it stays.
#pragma once

#include "deployops/elementwise.h"
#include "deployops/tensor.h"

namespace deployops {

template <class T>
void relu(const Parallel& par, In<T> x, Out<T> y) {
  using W = wide_t<T>;
  elementwise<Cost::memory>(par, y.data, x.numel(), [](vec<W> v) { return at_least(v, W(0)); }, x.data);
}

}  // namespace deployops
