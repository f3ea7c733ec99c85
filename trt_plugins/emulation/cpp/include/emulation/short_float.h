// What CUDA's two floats of 16 bits have in common. Converted by rounding to nearest, ties to even; arithmetic is done in float
// and rounded, as the device's instructions round. Functions are friends: found and converting as CUDA's own do.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_runtime.h"

// `Self`: the type of CUDA, derived from this one, with `deployops_pack` and `deployops_unpack` between a float and the bits.
template <class Self>
struct deployops_short_float {
  uint16_t deployops_bits;

  deployops_short_float() = default;
  deployops_short_float(float v) : deployops_bits(Self::deployops_pack(v)) {}
  deployops_short_float(double v) : deployops_short_float(odd_rounded(v)) {}
  deployops_short_float(int v) : deployops_short_float(double(v)) {}
  deployops_short_float(unsigned v) : deployops_short_float(double(v)) {}
  deployops_short_float(long v) : deployops_short_float(double(v)) {}
  deployops_short_float(long long v) : deployops_short_float(double(v)) {}
  operator float() const { return Self::deployops_unpack(deployops_bits); }

  Self& operator+=(Self o) { return self() = self() + o; }
  Self& operator-=(Self o) { return self() = self() - o; }
  Self& operator*=(Self o) { return self() = self() * o; }
  Self& operator/=(Self o) { return self() = self() / o; }

  friend Self operator+(Self a, Self b) { return float(a) + float(b); }
  friend Self operator-(Self a, Self b) { return float(a) - float(b); }
  friend Self operator*(Self a, Self b) { return float(a) * float(b); }
  friend Self operator/(Self a, Self b) { return float(a) / float(b); }
  friend Self operator-(Self a) { return -float(a); }
  friend bool operator==(Self a, Self b) { return float(a) == float(b); }
  friend bool operator!=(Self a, Self b) { return float(a) != float(b); }
  friend bool operator<(Self a, Self b) { return float(a) < float(b); }
  friend bool operator>(Self a, Self b) { return float(a) > float(b); }
  friend bool operator<=(Self a, Self b) { return float(a) <= float(b); }
  friend bool operator>=(Self a, Self b) { return float(a) >= float(b); }

  friend Self __hadd(Self a, Self b) { return a + b; }
  friend Self __hsub(Self a, Self b) { return a - b; }
  friend Self __hmul(Self a, Self b) { return a * b; }
  friend Self __hdiv(Self a, Self b) { return a / b; }
  friend Self __hneg(Self a) { return -a; }
  friend Self __habs(Self a) { return std::fabs(float(a)); }
  // a·b is exact in double, and the sum is rounded there to odd.
  friend Self __hfma(Self a, Self b, Self c) { return std::fma(double(float(a)), double(float(b)), double(float(c))); }
  friend Self __hmax(Self a, Self b) { return std::fmax(float(a), float(b)); }
  friend Self __hmin(Self a, Self b) { return std::fmin(float(a), float(b)); }
  friend bool __heq(Self a, Self b) { return a == b; }
  friend bool __hlt(Self a, Self b) { return a < b; }
  friend bool __hgt(Self a, Self b) { return a > b; }
  friend bool __hisnan(Self a) { return float(a) != float(a); }
  friend int __hisinf(Self a) { return std::isinf(float(a)) ? (float(a) > 0 ? 1 : -1) : 0; }
  friend Self hexp(Self a) { return std::exp(float(a)); }
  friend Self hlog(Self a) { return std::log(float(a)); }
  friend Self hsqrt(Self a) { return std::sqrt(float(a)); }
  friend Self hrsqrt(Self a) { return 1 / std::sqrt(double(float(a))); }
  friend Self hrcp(Self a) { return 1 / float(a); }

 private:
  Self& self() { return static_cast<Self&>(*this); }

  // The float that a double rounds to on the way to fewer digits without being rounded twice.
  static float odd_rounded(double v) {
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

// Two of them, side by side.
template <class T>
struct alignas(4) deployops_short_pair {
  T x, y;

  friend float __low2float(deployops_short_pair v) { return v.x; }
  friend float __high2float(deployops_short_pair v) { return v.y; }
  friend deployops_short_pair __hadd2(deployops_short_pair a, deployops_short_pair b) { return {a.x + b.x, a.y + b.y}; }
  friend deployops_short_pair __hsub2(deployops_short_pair a, deployops_short_pair b) { return {a.x - b.x, a.y - b.y}; }
  friend deployops_short_pair __hmul2(deployops_short_pair a, deployops_short_pair b) { return {a.x * b.x, a.y * b.y}; }
  friend deployops_short_pair __hfma2(deployops_short_pair a, deployops_short_pair b, deployops_short_pair c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
  }
};
