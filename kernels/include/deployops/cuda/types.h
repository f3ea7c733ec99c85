// Element types on the device, and the type in which each is computed: __half and __nv_bfloat16 in float.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "deployops/dtypes.h"
#include "deployops/tensor.h"

namespace deployops {

namespace detail {
template <> struct Wide<__half> { using type = float; };
template <> struct Wide<__nv_bfloat16> { using type = float; };
}  // namespace detail

__device__ inline float widen(__half v) { return __half2float(v); }
__device__ inline float widen(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ inline float widen(float v) { return v; }
__device__ inline double widen(double v) { return v; }

// A number rounded to T, once.
template <class T>
__device__ inline T narrow(wide_t<T> v) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(v);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(v);
  } else {
    return v;
  }
}

// Constants that <limits> has for the host only.
template <class W> __device__ inline W infinity() { return W(INFINITY); }
template <class W> __device__ inline W quiet_nan() { return W(NAN); }

}  // namespace deployops
