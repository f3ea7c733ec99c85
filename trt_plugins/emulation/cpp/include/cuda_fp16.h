// Stands in for CUDA's header of that name: IEEE 754 binary16, with CUDA's names. Converted by rounding to nearest, ties to even;
// arithmetic is done in float and rounded, as the device's instructions round.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_runtime.h"
#include "deployops/dtypes.h"

struct __half {
  uint16_t deployops_bits;

  __half() = default;
  __half(float v) : deployops_bits(deployops::detail::half_from_float(v)) {}
  __half(double v) : __half(deployops_odd_rounded(v)) {}
  __half(int v) : __half(double(v)) {}
  __half(unsigned v) : __half(double(v)) {}
  __half(long v) : __half(double(v)) {}
  __half(long long v) : __half(double(v)) {}
  operator float() const { return deployops::detail::float_from_half(deployops_bits); }

  __half& operator+=(__half o) { return *this = __half(float(*this) + float(o)); }
  __half& operator-=(__half o) { return *this = __half(float(*this) - float(o)); }
  __half& operator*=(__half o) { return *this = __half(float(*this) * float(o)); }
  __half& operator/=(__half o) { return *this = __half(float(*this) / float(o)); }

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
struct alignas(4) __half2 {
  __half x, y;
};
static_assert(sizeof(__half) == 2 && sizeof(__half2) == 4);
using half = __half;
using half2 = __half2;

inline __half operator+(__half a, __half b) { return float(a) + float(b); }
inline __half operator-(__half a, __half b) { return float(a) - float(b); }
inline __half operator*(__half a, __half b) { return float(a) * float(b); }
inline __half operator/(__half a, __half b) { return float(a) / float(b); }
inline __half operator-(__half a) { return -float(a); }
inline bool operator==(__half a, __half b) { return float(a) == float(b); }
inline bool operator!=(__half a, __half b) { return float(a) != float(b); }
inline bool operator<(__half a, __half b) { return float(a) < float(b); }
inline bool operator>(__half a, __half b) { return float(a) > float(b); }
inline bool operator<=(__half a, __half b) { return float(a) <= float(b); }
inline bool operator>=(__half a, __half b) { return float(a) >= float(b); }

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
inline float __low2float(__half2 v) { return v.x; }
inline float __high2float(__half2 v) { return v.y; }

inline __half __hadd(__half a, __half b) { return a + b; }
inline __half __hsub(__half a, __half b) { return a - b; }
inline __half __hmul(__half a, __half b) { return a * b; }
inline __half __hdiv(__half a, __half b) { return a / b; }
inline __half __hneg(__half a) { return -a; }
inline __half __habs(__half a) { return std::fabs(float(a)); }
// a·b is exact in double, and the sum is rounded there to odd.
inline __half __hfma(__half a, __half b, __half c) { return std::fma(double(float(a)), double(float(b)), double(float(c))); }
inline __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
inline __half2 __hsub2(__half2 a, __half2 b) { return {a.x - b.x, a.y - b.y}; }
inline __half2 __hmul2(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __half __hmax(__half a, __half b) { return std::fmax(float(a), float(b)); }
inline __half __hmin(__half a, __half b) { return std::fmin(float(a), float(b)); }
inline bool __heq(__half a, __half b) { return a == b; }
inline bool __hlt(__half a, __half b) { return a < b; }
inline bool __hgt(__half a, __half b) { return a > b; }
inline bool __hisnan(__half a) { return float(a) != float(a); }
inline int __hisinf(__half a) { return std::isinf(float(a)) ? (float(a) > 0 ? 1 : -1) : 0; }
inline __half hexp(__half a) { return std::exp(float(a)); }
inline __half hlog(__half a) { return std::log(float(a)); }
inline __half hsqrt(__half a) { return std::sqrt(float(a)); }
inline __half hrsqrt(__half a) { return 1 / std::sqrt(double(float(a))); }
inline __half hrcp(__half a) { return 1 / float(a); }
