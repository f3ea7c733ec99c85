// The real cube root.
//
// s ≈ |x|^(−1/3) comes from a third of the bits of |x| (exponent and digits are close to a logarithm). h = 1 − |x|·s³ then
// tells how far off it is, and the root is |x|·s²·(1 − h)^(−2/3). In float that power is a polynomial of h, of least
// relative error over the h that occur (Remez's algorithm in 40 digits): 1.8e-8, for halves 3.0e-7. In double it takes
// three steps. There is no division.
#pragma once

#include "deployops/polynomial.h"
#include "deployops/precision.h"
#include "deployops/simd.h"

namespace deployops {

namespace detail {

// What a cube root in float is made of: |x|·s², s² and h; |x| is normal and finite.
struct CubeRootParts {
  vec<float> first, square, h;
};

DEPLOYOPS_INLINE CubeRootParts cube_root_parts(vec<float> a) {
  using I = vec<int32_t>;
  const vec<float> bits = __builtin_convertvector((I)a, vec<float>);
  const vec<float> third = fma(bits, broadcast(-1 / 3.0f), broadcast(0x54a21800p0f));
  const vec<float> s = (vec<float>)__builtin_convertvector(third, I);
  const vec<float> square = s * s, first = a * square;
  return {first, square, fma(-first, s, broadcast(1.0f))};
}

// r ≈ |x|^(−1/3), 1.8e-6 off; |x| is normal and finite. A third of its bits is 4 % off; a polynomial of least relative
// error takes it from there.
DEPLOYOPS_INLINE vec<double> inverse_cube_root_estimate(vec<double> a) {
  using I = vec<int64_t>;
  // The upper half of the bits as a number, by way of the digits of 2^52.
  constexpr double two_52 = 0x1p52;
  const vec<double> bits = (vec<double>)(((I)a >> 32) | 0x4330000000000000) - two_52;
  const vec<double> third = fma(bits, broadcast(-1 / 3.0), broadcast(two_52 + 1430170282.0));
  const vec<double> r = (vec<double>)((I)third << 32);
  const vec<double> h = 1.0 - a * r * r * r;
  vec<double> p = fma(h, broadcast(0x1.89cc887a69acep-3), broadcast(0x1.c85a1feff1625p-3));
  p = fma(h, p, broadcast(0x1.554211210e3b5p-2));
  return r * fma(h, p, broadcast(0x1.ffffed9117abfp-1));
}

// |x|; the smallest ones times a number that has a cube root: then nothing below underflows.
template <class V>
struct Scaled {
  V magnitude, back;
};
template <class V>
DEPLOYOPS_INLINE Scaled<V> scaled_to_normal(V x) {
  using W = element_t<V>;
  constexpr W least = sizeof(W) == 4 ? W(0x1p-60) : W(0x1p-1000);
  constexpr W up = sizeof(W) == 4 ? W(0x1p96) : W(0x1p162), back = sizeof(W) == 4 ? W(0x1p-32) : W(0x1p-54);
  const V a = abs(x);
  const auto small = a < least;
  return {small ? a * up : a, small ? broadcast(back) : broadcast(W(1))};
}

// The root of |x| with the sign of x. ±∞ gives itself, 0 keeps its sign.
template <class V>
DEPLOYOPS_INLINE V with_sign(V root, V x) {
  using I = vec<int_of<element_t<V>>>;
  constexpr auto sign = int_of<element_t<V>>(1) << (sizeof(element_t<V>) * 8 - 1);
  return abs(x) == element_t<V>(__builtin_inf()) ? x : (V)((I)root | ((I)x & sign));
}

DEPLOYOPS_INLINE vec<float> cbrt_to(float, vec<float> x) {
  constexpr float q[] = {0x1.555552p-1f, 0x1.1c6f6cp-1f, 0x1.f9ac18p-2f, 0x1.d5919cp-2f, 0x1.b596e6p-2f};
  const Scaled<vec<float>> s = scaled_to_normal(x);
  const vec<float> a = s.magnitude;
  const auto [first, square_of_s, h] = cube_root_parts(a);
  const vec<float> rest = h * polynomial(h, h * h, q);  // (1 − h)^(−2/3) − 1
  vec<float> y = fma(first, rest, first);
  const vec<float> third = square_of_s * 0x1.555554p-2f, square = fma(third, rest, third);  // |x|^(−2/3)/3
#if defined(DEPLOYOPS_AVX512) || defined(DEPLOYOPS_AVX2) || defined(__aarch64__)
  // What y³ lacks of |x|, without a rounding error that counts; the sum below is the only rounding. The last digits of the
  // numbers above were chosen so that no float at all is rounded wrongly (all were compared).
  const vec<float> y2 = y * y;
  const vec<float> lack = fma(-fma(y, y, -y2), y, fma(-y2, y, a));
  y = fma(lack, square, y);
#else
  using Half = VecOf<float, lanes<double>>::type;
  Half as[2], ys[2], squares[2];
  std::memcpy(as, &a, sizeof a);
  std::memcpy(ys, &y, sizeof y);
  std::memcpy(squares, &square, sizeof square);
  for (int k = 0; k < 2; ++k) {
    const vec<double> wide = __builtin_convertvector(ys[k], vec<double>);
    vec<double> slope = __builtin_convertvector(squares[k], vec<double>);
    slope = slope * (2.0 - 3.0 * wide * wide * slope);
    const vec<double> step = (__builtin_convertvector(as[k], vec<double>) - wide * wide * wide) * slope;
    ys[k] = __builtin_convertvector(wide + step * (1.0 - 3.0 * step * wide * slope), Half);
  }
  std::memcpy(&y, ys, sizeof y);
#endif
  return with_sign(y * s.back, x);
}

// For halves: too large by 4.0e-7, give or take 3.9e-7. The roots of halves that are closest to a tie are above it, by
// 1.1e-8 at least, and those below it are 8.1e-7 away: so every one is rounded correctly.
DEPLOYOPS_INLINE vec<float> cbrt_to(float16, vec<float> x) {
  constexpr float power[] = {0x1.000006p+0f, 0x1.555374p-1f, 0x1.1c7077p-1f, 0x1.ff61d8p-2f, 0x1.d44036p-2f};
  const Scaled<vec<float>> s = scaled_to_normal(x);
  const CubeRootParts parts = cube_root_parts(s.magnitude);
  return with_sign(parts.first * polynomial(parts.h, parts.h * parts.h, power) * s.back, x);
}

DEPLOYOPS_INLINE vec<double> cbrt_to(double, vec<double> x) {
  const Scaled<vec<double>> s = scaled_to_normal(x);
  const vec<double> a = s.magnitude;
  vec<double> r = inverse_cube_root_estimate(a);
  const vec<double> h = 1.0 - a * r * r * r;
  r = fma(r * h, fma(h, broadcast(2 / 9.0), broadcast(1 / 3.0)), r);
  // The cube of the upper 17 digits of the root is exact, and so is what it lacks of a. With d the lack in parts of
  // a, the root is y·(1 − d)^(−1/3).
  const vec<double> y = (vec<double>)((vec<int64_t>)(a * r * r) & ~((int64_t(1) << 36) - 1));
  const vec<double> d = (a - y * y * y) * r * r * r;
  vec<double> p = fma(d, broadcast(35 / 243.0), broadcast(14 / 81.0));
  p = fma(d, p, broadcast(2 / 9.0));
  p = fma(d, p, broadcast(1 / 3.0));
  return with_sign(fma(y * d, p, y) * s.back, x);
}

}  // namespace detail

// T is the type that the result is rounded to: correctly, in double at most 0.5001 ULP off. ±0, ±∞ and NaN give
// themselves.
template <class T>
DEPLOYOPS_INLINE vec<wide_t<T>> cbrt(vec<wide_t<T>> x) {
  return detail::cbrt_to(detail::precision<T>{}, x);
}

}  // namespace deployops
