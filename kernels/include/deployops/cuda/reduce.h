// Sums and maxima over the threads of a group: a warp, or a whole block of warps.
#pragma once

#include "deployops/cuda/types.h"

namespace deployops {

constexpr int lanes_per_warp = 32;
constexpr unsigned all_lanes = 0xffffffffu;

struct Plus {
  template <class W> __device__ W operator()(W a, W b) const { return a + b; }
};
// The larger number; NaN is left out where the other is none.
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

// Every lane gets the same result, bit for bit: both partners of an exchange add the same two numbers.
template <class W, class F>
__device__ inline W warp_reduce(W v, F f) {
#pragma unroll
  for (int step = lanes_per_warp / 2; step > 0; step /= 2) v = f(v, __shfl_xor_sync(all_lanes, v, step));
  return v;
}

// Over the blockDim.x threads of a block that is one group. Every thread gets the same result.
template <class W, class F>
__device__ inline W block_reduce(W v, F f) {
  __shared__ W of_warps[lanes_per_warp];
  const int lane = int(threadIdx.x) % lanes_per_warp, warp = int(threadIdx.x) / lanes_per_warp;
  const int warps = int(blockDim.x) / lanes_per_warp;
  v = warp_reduce(v, f);
  __syncthreads();  // those who still read the last result
  if (lane == 0) of_warps[warp] = v;
  __syncthreads();
  v = of_warps[0];
  for (int k = 1; k < warps; ++k) v = f(v, of_warps[k]);
  return v;
}

// A group is a row of the block: a warp, or all of it where blockDim.y is 1.
template <class W, class F>
__device__ inline W group_reduce(W v, F f) {
  return blockDim.x == lanes_per_warp ? warp_reduce(v, f) : block_reduce(v, f);
}
template <class W>
__device__ inline W group_sum(W v) {
  return group_reduce(v, Plus());
}
template <class W>
__device__ inline W group_max(W v) {
  return group_reduce(v, Larger());
}

}  // namespace deployops
