// Functions of CUDA's device library that <cmath> lacks. What the device approximates is exact to rounding here: a test
// on the CPU says nothing of the error of `__expf` and its like.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

template <class T> inline T __ldg(const T* p) { return *p; }
template <class T> inline T __ldcs(const T* p) { return *p; }
template <class T> inline T __ldcg(const T* p) { return *p; }
template <class T> inline T __ldca(const T* p) { return *p; }
template <class T> inline void __stcs(T* p, T v) { *p = v; }
template <class T> inline void __stcg(T* p, T v) { *p = v; }

inline float rsqrtf(float x) { return float(1 / std::sqrt(double(x))); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline float normcdff(float x) { return float(0.5 * std::erfc(-double(x) * 0.70710678118654752440)); }
inline double normcdf(double x) {
  // −x/√2 as two numbers: erfc multiplies its argument's error by 2x².
  const double high = -x * 0.70710678118654752440;
  const double low = std::fma(-x, 0.70710678118654752440, -high) + -x * -4.833646656726457e-17;
  const double value = std::erfc(high);
  return 0.5 * (std::isfinite(x) ? value - low * 1.1283791670955126 * std::exp(-high * high) : value);
}
inline float erfcxf(float x) { return float(std::exp(double(x) * double(x)) * std::erfc(double(x))); }

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1 / a; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz(unsigned(v)) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned __brev(unsigned v) {
  unsigned r = 0;
  for (int k = 0; k < 32; ++k) r |= (v >> k & 1u) << (31 - k);
  return r;
}
inline int __mul24(int a, int b) { return int(unsigned(a) * unsigned(b)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
inline int __mulhi(int a, int b) { return int((int64_t(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

template <class To, class From>
inline To deployops_bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline int __float_as_int(float v) { return deployops_bits_as<int>(v); }
inline unsigned __float_as_uint(float v) { return deployops_bits_as<unsigned>(v); }
inline float __int_as_float(int v) { return deployops_bits_as<float>(v); }
inline float __uint_as_float(unsigned v) { return deployops_bits_as<float>(v); }
inline long long __double_as_longlong(double v) { return deployops_bits_as<long long>(v); }
inline double __longlong_as_double(long long v) { return deployops_bits_as<double>(v); }
inline int __float2int_rn(float v) { return int(std::nearbyint(v)); }
inline int __float2int_rz(float v) { return int(v); }
inline float __int2float_rn(int v) { return float(v); }

// As CUDA has them, without a namespace.
inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline long min(long a, long b) { return b < a ? b : a; }
inline long max(long a, long b) { return a < b ? b : a; }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
inline unsigned long min(unsigned long a, unsigned long b) { return b < a ? b : a; }
inline unsigned long max(unsigned long a, unsigned long b) { return a < b ? b : a; }
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
