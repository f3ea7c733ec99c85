#pragma once
#include "deployops/cuda/launch.h"

namespace deployops {
namespace detail {

// The sizes of what comes out, and how far apart along each dim the numbers of x and y are: 0 where they repeat.
struct PlusDims {
  int rank;
  int64_t sizes[max_rank], x[max_rank], y[max_rank];
};

template <class T>
void plus_steps(In<T> operand, const PlusDims& dims, int64_t* steps) {
  int64_t step = 1;
  for (int d = dims.rank - 1, own = operand.rank - 1; d >= 0; --d, --own) {
    const int64_t size = own < 0 ? 1 : operand.sizes[own];
    require(size == dims.sizes[d] || size == 1, "dim ", d, " is ", dims.sizes[d], ", and of ", operand, " it is ", size);
    steps[d] = size == 1 ? 0 : step;
    step *= size;
  }
}

template <class T>
__global__ void plus_kernel(const T* x, const T* y, PlusDims dims, int64_t n, T* out) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  int64_t rest = i, of_x = 0, of_y = 0;
  for (int d = dims.rank - 1; d >= 0; --d) {
    const int64_t at = rest % dims.sizes[d];
    rest /= dims.sizes[d];
    of_x += at * dims.x[d];
    of_y += at * dims.y[d];
  }
  out[i] = narrow<T>(widen(x[of_x]) + widen(y[of_y]));
}
}  // namespace detail

template <class T>
cudaError_t plus(Stream stream, In<T> x, In<T> y, Out<T> out) {
  detail::PlusDims dims{};
  dims.rank = out.rank;
  for (int d = 0; d < out.rank; ++d) dims.sizes[d] = out.sizes[d];
  detail::plus_steps(x, dims, dims.x);
  detail::plus_steps(y, dims, dims.y);
  if (out.numel() == 0) return cudaSuccess;
  return launch(detail::plus_kernel<T>, unsigned((out.numel() + 127) / 128), 128, 0, stream, x.data, y.data, dims,
                out.numel(), out.data);
}

}  // namespace deployops
