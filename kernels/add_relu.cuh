// max(x + y, 0) of tensors that broadcast. Halves are added in float: the sum is rounded once, to the half.
#pragma once

#include "deployops/cuda/elementwise.h"
#include "deployops/cuda/math.h"

namespace deployops {

constexpr int add_relu_tactics = elementwise_tactics;

namespace detail {
struct AddRelu {
  template <class W> __device__ W operator()(W a, W b) const { return at_least_zero(a + b); }
};
}  // namespace detail

template <class T>
cudaError_t add_relu(Stream stream, In<T> x, In<T> y, Out<T> out) {
  OperandDims<2> dims;
  const int rank = x.rank > y.rank ? x.rank : y.rank;
  require(rank <= max_rank, "x has ", x.rank, " dimensions and y ", y.rank, "; at most ", max_rank);
  for (int d = 0; d < rank; ++d) {
    const int64_t a = d < rank - x.rank ? 1 : x.sizes[d - (rank - x.rank)];
    const int64_t b = d < rank - y.rank ? 1 : y.sizes[d - (rank - y.rank)];
    require(a == b || a == 1 || b == 1, "x is ", x, ", y is ", y, "; expected shapes that broadcast");
    dims.dimension(a == 1 ? b : a, {a != 1, b != 1});
  }
  return elementwise(stream, dims, out.data, detail::AddRelu(), x.data, y.data);
}

}  // namespace deployops
