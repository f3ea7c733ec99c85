// Stands in for CUDA's header of that name: the upper half of a float, with CUDA's names. Converted by rounding to nearest, ties to even;
// arithmetic is done in float and rounded, as the device's instructions round.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_runtime.h"
#include "deployops/dtypes.h"

struct __nv_bfloat16 {
  uint16_t deployops_bits;

  __nv_bfloat16() = default;
  __nv_bfloat16(float v) : deployops_bits(deployops::detail::bfloat_from_float(v)) {}
  __nv_bfloat16(double v) : __nv_bfloat16(deployops_odd_rounded(v)) {}
  __nv_bfloat16(int v) : __nv_bfloat16(double(v)) {}
  __nv_bfloat16(unsigned v) : __nv_bfloat16(double(v)) {}
  __nv_bfloat16(long v) : __nv_bfloat16(double(v)) {}
  __nv_bfloat16(long long v) : __nv_bfloat16(double(v)) {}
  operator float() const { return deployops::detail::float_from_bfloat(deployops_bits); }

  __nv_bfloat16& operator+=(__nv_bfloat16 o) { return *this = __nv_bfloat16(float(*this) + float(o)); }
  __nv_bfloat16& operator-=(__nv_bfloat16 o) { return *this = __nv_bfloat16(float(*this) - float(o)); }
  __nv_bfloat16& operator*=(__nv_bfloat16 o) { return *this = __nv_bfloat16(float(*this) * float(o)); }
  __nv_bfloat16& operator/=(__nv_bfloat16 o) { return *this = __nv_bfloat16(float(*this) / float(o)); }

 private:
  // The float that a double rounds to on the way to fewer digits without being rounded twice.
  static float deployops_odd_rounded(double v) {
    float f = float(v);
    if (double(f) == v || v != v || std::isinf(f)) return f;
    if (std::fabs(double(f)) > std::fabs(v)) f = std::nextafter(f, 0.0f);
    uint32_t bits;
    std::memcpy(&bits, &f, sizeof f);
    bits |= 1;
    std::memcpy(&f, &bits, sizeof f);
    return f;
  }
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
static_assert(sizeof(__nv_bfloat16) == 2 && sizeof(__nv_bfloat162) == 4);
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 operator+(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) + float(b); }
inline __nv_bfloat16 operator-(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) - float(b); }
inline __nv_bfloat16 operator*(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) * float(b); }
inline __nv_bfloat16 operator/(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) / float(b); }
inline __nv_bfloat16 operator-(__nv_bfloat16 a) { return -float(a); }
inline bool operator==(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) == float(b); }
inline bool operator!=(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) != float(b); }
inline bool operator<(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) < float(b); }
inline bool operator>(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) > float(b); }
inline bool operator<=(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) <= float(b); }
inline bool operator>=(__nv_bfloat16 a, __nv_bfloat16 b) { return float(a) >= float(b); }

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
inline float __low2float(__nv_bfloat162 v) { return v.x; }
inline float __high2float(__nv_bfloat162 v) { return v.y; }

inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b) { return a + b; }
inline __nv_bfloat16 __hsub(__nv_bfloat16 a, __nv_bfloat16 b) { return a - b; }
inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b) { return a * b; }
inline __nv_bfloat16 __hdiv(__nv_bfloat16 a, __nv_bfloat16 b) { return a / b; }
inline __nv_bfloat16 __hneg(__nv_bfloat16 a) { return -a; }
inline __nv_bfloat16 __habs(__nv_bfloat16 a) { return std::fabs(float(a)); }
// a·b is exact in double, and the sum is rounded there to odd.
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) { return std::fma(double(float(a)), double(float(b)), double(float(c))); }
inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x + b.x, a.y + b.y}; }
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x - b.x, a.y - b.y}; }
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x * b.x, a.y * b.y}; }
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b) { return std::fmax(float(a), float(b)); }
inline __nv_bfloat16 __hmin(__nv_bfloat16 a, __nv_bfloat16 b) { return std::fmin(float(a), float(b)); }
inline bool __heq(__nv_bfloat16 a, __nv_bfloat16 b) { return a == b; }
inline bool __hlt(__nv_bfloat16 a, __nv_bfloat16 b) { return a < b; }
inline bool __hgt(__nv_bfloat16 a, __nv_bfloat16 b) { return a > b; }
inline bool __hisnan(__nv_bfloat16 a) { return float(a) != float(a); }
inline int __hisinf(__nv_bfloat16 a) { return std::isinf(float(a)) ? (float(a) > 0 ? 1 : -1) : 0; }
inline __nv_bfloat16 hexp(__nv_bfloat16 a) { return std::exp(float(a)); }
inline __nv_bfloat16 hlog(__nv_bfloat16 a) { return std::log(float(a)); }
inline __nv_bfloat16 hsqrt(__nv_bfloat16 a) { return std::sqrt(float(a)); }
inline __nv_bfloat16 hrsqrt(__nv_bfloat16 a) { return 1 / std::sqrt(double(float(a))); }
inline __nv_bfloat16 hrcp(__nv_bfloat16 a) { return 1 / float(a); }
