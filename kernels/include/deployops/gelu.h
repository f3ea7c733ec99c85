// GELU, z·Φ(z) with the distribution function Φ of the normal distribution, and its tanh form.
//
// Φ(−t) = exp(−t²/2)·g(t) for t ≥ 0, with g(t) = erfc(t/√2)·exp(t²/2)/2. (t + k)·g(t) is a polynomial of
// u − 1/2, where u = t/(t + k), of least relative error for t up to where the result underflows (Remez's algorithm
// in 50 digits, coefficients then rounded): 1.4e-8 for float, 3.6e-17 for double. What is needed, t·g(t), is u times
// that. t² enters exp with the rounding of the square, which would cost t²/2 ULP otherwise.
//
// T is the type that a result is rounded to. For halves fewer digits are computed: at most 0.55 ULP of float16 off, 0.51
// of bfloat16.
#pragma once

#include "deployops/logistic.h"
#include "deployops/product.h"

namespace deployops {

namespace detail {

template <class P> struct GeluNumbers;

template <>
struct GeluNumbers<float> {
  static constexpr float is_zero = 14.7f;  // t from which on t·Φ(−t) is 0
  static constexpr float k = 3.53125f;
  static constexpr float p[] = {0x1.7d8ba6p-1f, -0x1.231b32p+0f, 0x1.47fd1ep+0f, -0x1.ed8410p-1f, 0x1.43444ap-2f,
                                0x1.8ac77cp-3f, -0x1.b9bc1ep-3f, -0x1.95f278p-5f, 0x1.cdd882p-4f, 0x1.a72c12p-5f};
};

template <>
struct GeluNumbers<double> {
  static constexpr double is_zero = 39.0;
  static constexpr double k = 3.9375;
  static constexpr double p[] = {
      0x1.821acfbf528d2p-1, -0x1.34d8ef87d379cp+0, 0x1.83fb4cdadf55fp+0, -0x1.6c3b5dd50c506p+0,
      0x1.be15c26e4d4f4p-1, -0x1.4b709d9ee6fe3p-3, -0x1.f62b5c6338cd9p-3, 0x1.7042adcf45918p-3,
      0x1.fe8d1b3892315p-5, -0x1.c2b6d73d715ffp-4, -0x1.78320e9347ce3p-6, 0x1.197fc56a9a97cp-4,
      0x1.311bc3800984bp-6, -0x1.70a253e9930c3p-5, -0x1.6ee000e8a6348p-6, 0x1.c9eccc9fa980ap-6,
      0x1.b2deb1e0217ffp-6, -0x1.9a794608b01dbp-7, -0x1.bb9c4554a120ap-6, -0x1.caa45e0a8e01ap-10,
      0x1.54537743184fbp-6, 0x1.5d8323e411193p-7, -0x1.092ef1d567273p-7, -0x1.139ce16f3f3f6p-7,
      -0x1.821f4d78039e7p-10};
};

template <>
struct GeluNumbers<float16> : GeluNumbers<float> {
  static constexpr float k = 3.25f;
  static constexpr float p[] = {0x1.799124p-1f,  -0x1.143952p+0f, 0x1.192b9ep+0f,
                                -0x1.4ad1f4p-1f, 0x1.690578p-8f,  0x1.f3c060p-3f};
};

// What t·Φ(−t) is taken from: z where it is positive, −0 where it is negative; NaN at −∞, as −∞·0 in the formula.
template <class V>
DEPLOYOPS_INLINE V gelu_above(V z) {
  using W = element_t<V>;
#if defined(DEPLOYOPS_AVX512)
  // An action for each kind of number, from the last digit on: NaN, 0 and 1 stay, −∞ becomes NaN, ∞ stays, a negative
  // one becomes −0, a positive one stays.
  constexpr int64_t actions = 0x17131122;
  if constexpr (sizeof(W) == 4) {
    return (V)_mm512_maskz_fixupimm_ps(__mmask16(-1), (__m512)z, (__m512)z, _mm512_set1_epi32(int(actions)), 0);
  } else {
    return (V)_mm512_maskz_fixupimm_pd(__mmask8(-1), (__m512d)z, (__m512d)z, _mm512_set1_epi64(actions), 0);
  }
#else
  return z < W(0) ? W(-0.0) - (z - z) : z;
#endif
}

// The smaller one of |z| and a limit above 0; where z is NaN, any number.
template <class V>
DEPLOYOPS_INLINE V magnitude_at_most(V z, element_t<V> limit) {
#if defined(DEPLOYOPS_AVX512)
  constexpr int smaller_magnitude = 0b1010;  // and a sign of 0
  const V l = broadcast(limit);
  if constexpr (sizeof(element_t<V>) == 4) {
    return (V)_mm512_maskz_range_ps(__mmask16(-1), (__m512)z, (__m512)l, smaller_magnitude);
  } else {
    return (V)_mm512_maskz_range_pd(__mmask8(-1), (__m512d)z, (__m512d)l, smaller_magnitude);
  }
#else
  return at_most(abs(z), limit);
#endif
}

template <class P, class V>
DEPLOYOPS_INLINE V gelu_to(V z) {
  using W = element_t<V>;
  using Numbers = GeluNumbers<P>;
  const V t = magnitude_at_most(z, Numbers::is_zero);
  const V u = t / (t + Numbers::k), v = u - W(0.5);
  const V p = u * polynomial(v, v * v, Numbers::p);
  const V h = W(-0.5) * t, exponent = h * t;
  ExpParts<V> e;
  if constexpr (std::is_same_v<P, float16>) {
    e = exp_parts<P>(exponent);
  } else {
    e = exp_parts<P>(exponent, rounding_of_product(h, t, exponent));
  }
  // t·Φ(−t), the power of two last: it is what underflows. gelu(z) is −t·Φ(−t) or z − t·Φ(−t).
  const V tail = scale(fma(p, e.p, p), e.n);
  return gelu_above(z) - tail;
}

// (1 + tanh(a))/2 is logistic(2a), which does not cancel. 2a is z·(linear + cubic·z²), with 2·√(2/π) and 0.044715
// times that, each as two numbers.
template <class W> struct GeluTanhNumbers;
template <> struct GeluTanhNumbers<float> {
  static constexpr float linear = 0x1.988454p+0f, linear_low = -0x1.857936p-25f;
  static constexpr float cubic = 0x1.2444f2p-4f, cubic_low = 0x1.49b16ap-29f;
};
template <> struct GeluTanhNumbers<double> {
  static constexpr double linear = 0x1.9884533d43651p+0, linear_low = -0x1.cbc0d30ebfd15p-54;
  static constexpr double cubic = 0x1.2444f2a4d8b4bp-4, cubic_low = -0x1.6c843a29d1c7p-61;
};

template <class P, class V>
DEPLOYOPS_INLINE V gelu_tanh_to(V z) {
  using Numbers = GeluTanhNumbers<element_t<V>>;
  const V linear = broadcast(Numbers::linear), cubic = broadcast(Numbers::cubic);
  const V square = z * z;
  const V factor = fma(square, cubic, linear);
  const V argument = z * factor;
  if constexpr (std::is_same_v<P, float16>) {
    return times_logistic_to<P>(z, argument);
  } else {
    // What the roundings of these three left out: it comes back `argument` times as large.
    V low = fma(square, broadcast(Numbers::cubic_low), broadcast(Numbers::linear_low));
    low = fma(rounding_of_product(z, z, square), cubic, low);
    low = (fma(square, cubic, -factor) + linear) + low;
    low = fma(z, low, rounding_of_product(z, factor, argument));
    return times_logistic_to<P>(z, argument, low);
  }
}

}  // namespace detail

// z·Φ(z), the exact form. At most 4.5 ULP off in float, 5.5 in double, without fma 7. −∞ gives NaN, as −∞·0.
template <class T>
DEPLOYOPS_INLINE vec<wide_t<T>> gelu(vec<wide_t<T>> z) {
  return detail::gelu_to<detail::precision<T>>(z);
}

// z·(1 + tanh(√(2/π)·(z + 0.044715·z³)))/2. −∞ gives NaN, as −∞·0. At most 12 ULP off in float, 25 in double, and far
// fewer above −5; without fma at most 50 and 400.
template <class T>
DEPLOYOPS_INLINE vec<wide_t<T>> gelu_tanh(vec<wide_t<T>> z) {
  return detail::gelu_tanh_to<detail::precision<T>>(z);
}

}  // namespace deployops
