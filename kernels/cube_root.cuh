// The real cube root, by CUDA's cbrt: at most 1 ULP off (CUDA C++ Programming Guide, "Mathematical Functions").
#pragma once

#include "deployops/cuda/elementwise.h"
#include "deployops/cuda/math.h"

namespace deployops {

constexpr int cube_root_tactics = elementwise_tactics;

namespace detail {
struct CubeRoot {
  template <class W> __device__ W operator()(W v) const { return cbrt_of(v); }
};
}  // namespace detail

template <class T>
cudaError_t cube_root(Stream stream, In<T> x, Out<T> y) {
  return elementwise(stream, x, y, detail::CubeRoot());
}

}  // namespace deployops
