// GELU, z·Φ(z) with the distribution function Φ of the normal distribution, and its tanh form.
//
// Φ(−t) = exp(−t²/2)·g(t) for t ≥ 0, with g(t) = erfc(t/√2)·exp(t²/2)/2. (t + k)·g(t) is a polynomial of
// u − 1/2, where u = t/(t + k), of least relative error for t up to where the result underflows (Remez's algorithm,
// coefficients then rounded, each for those that were): 2.0e-8 for float, 3.6e-17 for double. What is needed, t·g(t),
// is u times that. t² enters exp with the rounding of the square, which would cost t²/2 ULP otherwise.
//
// T is the type that a result is rounded to. For halves fewer digits are computed: at most 0.55 ULP of float16 off, 0.51
// of bfloat16.
#pragma once

#include "deployops/logistic.h"
#include "deployops/product.h"

namespace deployops {

namespace detail {

// p: the coefficients of half the polynomial.
template <class P> struct GeluNumbers;

template <>
struct GeluNumbers<float> {
  static constexpr float is_zero = 14.7f;  // t from which on t·Φ(−t) is 0
  static constexpr float k = 0x1.e2bc28p+1f;
  static constexpr float p[] = {0x1.8062a8p-2f, -0x1.2e11dcp-1f, 0x1.6c8868p-1f, -0x1.3c7f4ep-1f, 0x1.426778p-2f,
                                0x1.32302ap-7f, -0x1.131cf2p-3f, 0x1.3b7e26p-5f, 0x1.d78944p-5f};
};

template <>
struct GeluNumbers<double> {
  static constexpr double is_zero = 39.0;
  static constexpr double k = 3.9375;
  static constexpr double p[] = {
      0x1.821acfbf528d2p-2, -0x1.34d8ef87d379cp-1, 0x1.83fb4cdadf55fp-1, -0x1.6c3b5dd50c506p-1,
      0x1.be15c26e4d4f4p-2, -0x1.4b709d9ee6fe3p-4, -0x1.f62b5c6338cd9p-4, 0x1.7042adcf45918p-4,
      0x1.fe8d1b3892315p-6, -0x1.c2b6d73d715ffp-5, -0x1.78320e9347ce3p-7, 0x1.197fc56a9a97cp-5,
      0x1.311bc3800984bp-7, -0x1.70a253e9930c3p-6, -0x1.6ee000e8a6348p-7, 0x1.c9eccc9fa980ap-7,
      0x1.b2deb1e0217ffp-7, -0x1.9a794608b01dbp-8, -0x1.bb9c4554a120ap-7, -0x1.caa45e0a8e01ap-11,
      0x1.54537743184fbp-7, 0x1.5d8323e411193p-8, -0x1.092ef1d567273p-8, -0x1.139ce16f3f3f6p-8,
      -0x1.821f4d78039e7p-11};
};

template <>
struct GeluNumbers<float16> : GeluNumbers<float> {
  static constexpr float k = 3.25f;
  static constexpr float p[] = {0x1.799124p-2f,  -0x1.143952p-1f, 0x1.192b9ep-1f,
                                -0x1.4ad1f4p-2f, 0x1.690578p-9f,  0x1.f3c060p-4f};
};

template <class W, int N>
struct Coefficients {
  W c[N];
};

// The polynomial q(−r/2)·(−1/2) of r.
template <class W, int N>
constexpr Coefficients<W, N> of_minus_half(const W (&q)[N]) {
  Coefficients<W, N> made{};
  W factor = W(-0.5);
  for (int k = 0; k < N; ++k, factor *= W(-0.5)) made.c[k] = factor * q[k];
  return made;
}

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

// The numbers n and p with exp(−t²/2) = 2ⁿ·(1 − p/2). It is `exp_parts` with −2 times its r, which saves the
// multiplication of t² by −1/2.
template <class P, class V>
DEPLOYOPS_INLINE ExpParts<V> exp_of_half_square(V t) {
  using W = element_t<V>;
  using Numbers = ExpNumbers<P>;
  static constexpr auto q = of_minus_half(Numbers::q);
  const V square = t * t;
  const V n = fma(square, broadcast(W(-0.5) * Numbers::log2_e), broadcast(Numbers::round_to_integer)) -
              Numbers::round_to_integer;
  V r;
  if constexpr (std::is_same_v<P, double>) {
    r = fma(n, broadcast(2 * Numbers::ln2_high), square) + rounding_of_product(t, t, square);
    r = fma(n, broadcast(2 * Numbers::ln2_low), r);
  } else {
    // The float next to ln 2 stands for ln 2. What comes of it is exp(−t²/2·(1 − 2.75e-9)): the coefficients of
    // GeluNumbers<float> make up for that.
    constexpr W ln2 = 0x1.62e43p-1f;
#if defined(DEPLOYOPS_AVX512) || defined(DEPLOYOPS_AVX2) || defined(__aarch64__)
    r = fma(n, broadcast(2 * ln2), square);
#else
    constexpr W high = ExpNumbers<float>::ln2_high;
    r = fma(n, broadcast(2 * (ln2 - high)), fma(n, broadcast(2 * high), square));
#endif
    if constexpr (std::is_same_v<P, float>) r = r + rounding_of_product(t, t, square);
  }
  const V r2 = r * r;
  return {n, fma(r2, polynomial(r, r2, q.c), r)};
}

template <class P, class V>
DEPLOYOPS_INLINE V gelu_to(V z) {
  using W = element_t<V>;
  using Numbers = GeluNumbers<P>;
  const V t = magnitude_at_most(z, Numbers::is_zero);
  const V u = t / (t + Numbers::k), v = u - W(0.5);
  const V p = u * polynomial(v, v * v, Numbers::p);
  const ExpParts<V> e = exp_of_half_square<P>(t);
  // t·Φ(−t), the power of two last: it is what underflows. gelu(z) is −t·Φ(−t) or z − t·Φ(−t).
  const V tail = scale(fma(-p, e.p, p + p), e.n);
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

// z·Φ(z), the exact form. At most 4.5 ULP off in float, 5.5 in double, without fma 5 and 7. −∞ gives NaN, as −∞·0.
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
