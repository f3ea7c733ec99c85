// Stands in for CUDA's header of that name: the upper half of a float, with CUDA's names.
#pragma once

#include "emulation/short_float.h"

#include "deployops/dtypes.h"

struct __nv_bfloat16 : deployops_short_float<__nv_bfloat16> {
  using deployops_short_float::deployops_short_float;
  static uint16_t deployops_pack(float v) { return deployops::detail::bfloat_from_float(v); }
  static float deployops_unpack(uint16_t bits) { return deployops::detail::float_from_bfloat(bits); }
};
using __nv_bfloat162 = deployops_short_pair<__nv_bfloat16>;
static_assert(sizeof(__nv_bfloat16) == 2 && sizeof(__nv_bfloat162) == 4);
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline float __bfloat162float(__nv_bfloat16 v) { return v; }
inline __nv_bfloat16 __float2bfloat16(float v) { return v; }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return v; }
inline __nv_bfloat16 __double2bfloat16(double v) { return v; }
inline __nv_bfloat16 __int2bfloat16_rn(int v) { return v; }
inline int __bfloat162int_rn(__nv_bfloat16 v) { return int(std::nearbyint(float(v))); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.deployops_bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16 v;
  v.deployops_bits = bits;
  return v;
}
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 v) { return {v, v}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {v.x, v.y}; }
inline __nv_bfloat162 __float2bfloat162_rn(float v) { return {v, v}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x, v.y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
