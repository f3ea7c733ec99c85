// Stands in for CUDA's header of that name: IEEE 754 binary16, with CUDA's names.
#pragma once

#include "emulation/short_float.h"

#include "deployops/dtypes.h"

struct __half : deployops_short_float<__half> {
  using deployops_short_float::deployops_short_float;
  static uint16_t deployops_pack(float v) { return deployops::detail::half_from_float(v); }
  static float deployops_unpack(uint16_t bits) { return deployops::detail::float_from_half(bits); }
};
using __half2 = deployops_short_pair<__half>;
static_assert(sizeof(__half) == 2 && sizeof(__half2) == 4);
using half = __half;
using half2 = __half2;

inline float __half2float(__half v) { return v; }
inline __half __float2half(float v) { return v; }
inline __half __float2half_rn(float v) { return v; }
inline __half __double2half(double v) { return v; }
inline __half __int2half_rn(int v) { return v; }
inline int __half2int_rn(__half v) { return int(std::nearbyint(float(v))); }
inline unsigned short __half_as_ushort(__half v) { return v.deployops_bits; }
inline __half __ushort_as_half(unsigned short bits) {
  __half v;
  v.deployops_bits = bits;
  return v;
}
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half v) { return {v, v}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 v) { return {v.x, v.y}; }
inline __half2 __float2half2_rn(float v) { return {v, v}; }
inline float2 __half22float2(__half2 v) { return {v.x, v.y}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
