// max(x, 0). A NaN is not larger than 0, nor smaller: it stays. Bound by memory: 2·sizeof(T) bytes for an element.
#pragma once

#include "deployops/cuda/elementwise.h"
#include "deployops/cuda/math.h"

namespace deployops {

constexpr int relu_tactics = elementwise_tactics;

namespace detail {
struct Relu {
  template <class W> __device__ W operator()(W v) const { return at_least_zero(v); }
};
}  // namespace detail

template <class T>
cudaError_t relu(Stream stream, In<T> x, Out<T> y) {
  return elementwise(stream, x, y, detail::Relu());
}

}  // namespace deployops
