// The real cube root.
//
// r ≈ |x|^(−1/3) comes from a third of the bits of |x| (exponent and digits are close to a logarithm), 4 % off at
// most. h = 1 − |x|·r³ then tells the error: |x|^(−1/3) = r·(1 − h)^(−1/3). A polynomial of degree 3 in h, of least
// relative error over the h that occur (Remez's algorithm), leaves 1.8e-6, and the Taylor series the rest. There is
// no division.
#pragma once

#include "deployops/precision.h"
#include "deployops/simd.h"

namespace deployops {

namespace detail {

// r for |x|, normal and finite.
DEPLOYOPS_INLINE vec<float> inverse_cube_root_estimate(vec<float> a) {
  using I = vec<int32_t>;
  const vec<float> bits = __builtin_convertvector((I)a, vec<float>);
  const vec<float> third = fma(bits, broadcast(-1 / 3.0f), broadcast(0x54a00000p0f));
  const vec<float> r = (vec<float>)__builtin_convertvector(third, I);
  const vec<float> h = 1.0f - a * r * r * r;
  vec<float> p = fma(h, broadcast(0x1.89cc88p-3f), broadcast(0x1.c85a2p-3f));
  p = fma(h, p, broadcast(0x1.554212p-2f));
  return r * fma(h, p, broadcast(0x1.ffffeep-1f));
}
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

// ±∞ gives itself, 0 keeps its sign.
template <class V>
DEPLOYOPS_INLINE V with_sign(V root, V x) {
  return abs(x) == element_t<V>(__builtin_inf()) ? x : copysign(root, x);
}

DEPLOYOPS_INLINE vec<float> cbrt_to(float, vec<float> x) {
  const Scaled<vec<float>> s = scaled_to_normal(x);
  const vec<float> a = s.magnitude;
  vec<float> r = inverse_cube_root_estimate(a);
#if defined(DEPLOYOPS_AVX512) || defined(DEPLOYOPS_AVX2) || defined(__aarch64__)
  vec<float> square = r * r, y = a * square;
  const vec<float> h = fma(-y, r, broadcast(1.0f)) * (2 / 3.0f);
  y = fma(y, h, y);
  square = fma(square, h, square);  // |x|^(−2/3)
  // What y³ lacks of |x|, without a rounding error that counts; the sum below is the only rounding.
  const vec<float> y2 = y * y;
  const vec<float> lack = fma(-fma(y, y, -y2), y, fma(-y2, y, a));
  // A little below 1/3, for the square of what is lacking: so no float at all is rounded wrongly (all were compared).
  y = fma(lack, square * 0x1.555552p-2f, y);
#else
  const auto root = [](vec<double> a, vec<double> r) {
    const vec<double> y = a * r * r;
    const vec<double> h = 1.0 - y * r;
    return fma(y * h, fma(h, broadcast(5 / 9.0), broadcast(2 / 3.0)), y);  // y·(1 − h)^(−2/3)
  };
  using Half = VecOf<float, lanes<double>>::type;
  Half as[2], rs[2], ys[2];
  std::memcpy(as, &a, sizeof a);
  std::memcpy(rs, &r, sizeof r);
  for (int k = 0; k < 2; ++k) {
    ys[k] = __builtin_convertvector(
        root(__builtin_convertvector(as[k], vec<double>), __builtin_convertvector(rs[k], vec<double>)), Half);
  }
  vec<float> y;
  std::memcpy(&y, ys, sizeof y);
#endif
  return with_sign(y * s.back, x);
}

// For halves: too large by 2.4e-7, give or take 1.8e-7. The roots of halves that are closest to a tie are above it, by
// 1.1e-8 at least, and those below it are 8.1e-7 away: so every one is rounded correctly.
DEPLOYOPS_INLINE vec<float> cbrt_to(float16, vec<float> x) {
  const Scaled<vec<float>> s = scaled_to_normal(x);
  const vec<float> r = inverse_cube_root_estimate(s.magnitude);
  const vec<float> y = s.magnitude * r * r;
  const vec<float> h = 1.0f - y * r;
  return with_sign(fma(y, fma(h, broadcast(2 / 3.0f), broadcast(0x1p-22f)), y) * s.back, x);
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
