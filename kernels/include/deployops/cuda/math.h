// Functions of one number, in float and double, accurate as the kernels on the CPU promise. No approximate intrinsics.
#pragma once

#include "deployops/cuda/types.h"

namespace deployops {

__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }
__device__ inline float cbrt_of(float x) { return cbrtf(x); }
__device__ inline double cbrt_of(double x) { return cbrt(x); }
__device__ inline float fma_of(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double fma_of(double a, double b, double c) { return fma(a, b, c); }
__device__ inline float sqrt_of(float x) { return sqrtf(x); }
__device__ inline double sqrt_of(double x) { return sqrt(x); }
__device__ inline float abs_of(float x) { return fabsf(x); }
__device__ inline double abs_of(double x) { return fabs(x); }
__device__ inline float normal_cdf(float x) { return normcdff(x); }
__device__ inline double normal_cdf(double x) { return normcdf(x); }

template <class W>
__device__ inline bool is_finite(W v) {
  return abs_of(v) < infinity<W>();
}

// max(v, 0), where NaN stays.
template <class W>
__device__ inline W at_least_zero(W v) {
  return v < 0 ? W(0) : v;
}

// 1/(1 + exp(−(z + low))) with relative accuracy on both sides: exp never overflows, and a small result keeps its digits.
// `low` is a rounding error of z.
template <class W>
__device__ inline W logistic(W z, W low = 0) {
  W e = exp_of(-abs_of(z));
  e = fma_of(e, z < 0 ? low : -low, e);
  return (z < 0 ? e : W(1)) / (1 + e);
}

// z·Φ(z).
template <class W>
__device__ inline W gelu(W z) {
  return z * normal_cdf(z);
}

// z·(1 + tanh(√(2/π)·(z + 0.044715·z³)))/2, which is z·logistic(2√(2/π)·(z + …)).
template <class W>
__device__ inline W gelu_tanh(W z) {
  constexpr W linear = W(1.5957691216057307117597842397375), cubic = W(0.071354816272600250846);
  return z * logistic(z * fma_of(z * z, cubic, linear));
}

}  // namespace deployops
