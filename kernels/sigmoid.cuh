// The logistic function with relative accuracy on both sides. Bound by memory: 2·sizeof(T) bytes for an element.
#pragma once

#include "deployops/cuda/elementwise.h"
#include "deployops/cuda/math.h"

namespace deployops {

constexpr int sigmoid_tactics = elementwise_tactics;

namespace detail {
struct Sigmoid {
  template <class W> __device__ W operator()(W v) const { return logistic(v); }
};
}  // namespace detail

template <class T>
cudaError_t sigmoid(Stream stream, In<T> x, Out<T> y) {
  return elementwise(stream, x, y, detail::Sigmoid());
}

}  // namespace deployops
