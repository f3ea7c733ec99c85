// max(x + y, 0) of tensors that broadcast. Halves are added in float: the sum is rounded once, to the half.
#pragma once

#include "deployops/elementwise.h"
#include "deployops/tensor.h"

namespace deployops {

template <class T>
void add_relu(const Parallel& par, In<T> x, In<T> y, Out<T> out) {
  using W = wide_t<T>;
  const RepeatedLayout<2> layout = broadcast_layout(x, y);
  elementwise<Cost::memory>(
      par, layout, out.data, [](vec<W> a, vec<W> b) { return at_least(a + b, W(0)); }, x.data, y.data);
}

}  // namespace deployops
