// The exponential function of vectors, and its parts for what is built on it.
//
// x = n·ln 2 + r with n a whole number and |r| ≤ ln 2 / 2, so that exp(x) = 2ⁿ·(1 + r + r²·q(r)). n·ln 2 is
// subtracted in two parts, the first of them short enough that n times it is exact; q is the polynomial with the
// least relative error of exp on that interval (Remez's algorithm in 50 digits, coefficients then rounded):
// 3.2e-9 for float, 1.1e-17 for double, 5.4e-6 for what is rounded to a half. The last multiplication by 2ⁿ is the
// only one that can round to a subnormal number.
#pragma once

#include "deployops/polynomial.h"
#include "deployops/precision.h"

namespace deployops {

namespace detail {

template <class P> struct ExpNumbers;

template <>
struct ExpNumbers<float> {
  static constexpr float log2_e = 0x1.715476p+0f;
  static constexpr float ln2_high = 0x1.62e8p-1f, ln2_low = -0x1.e8082ep-16f;
  static constexpr float q[] = {0x1.fffffcp-2f, 0x1.55548cp-3f, 0x1.555858p-5f, 0x1.123de0p-7f, 0x1.6ac73cp-10f};
  // exp is 0 below `lowest` and infinite above `highest`, by rounding.
  static constexpr float lowest = -104.0f, highest = 89.0f;
  static constexpr int mantissa_bits = 23, bias = 127;
  static constexpr float round_to_integer = 0x1.8p23f;  // a + this − this
};

template <>
struct ExpNumbers<double> {
  static constexpr double log2_e = 0x1.71547652b82fep+0;
  static constexpr double ln2_high = 0x1.62e42fefa4p-1, ln2_low = -0x1.8432a1b0e2634p-43;
  static constexpr double q[] = {0x1.000000000000ap-1,  0x1.55555555554fap-3,  0x1.555555555087cp-5,
                                 0x1.1111111127be6p-7,  0x1.6c16c1842a198p-10, 0x1.a01a012a57713p-13,
                                 0x1.a0199a0c53efap-16, 0x1.71df2552a3075p-19, 0x1.28ad72dd1dd64p-22,
                                 0x1.ad7f6e8eaa133p-26};
  static constexpr double lowest = -746.0, highest = 710.0;
  static constexpr int mantissa_bits = 52, bias = 1023;
  static constexpr double round_to_integer = 0x1.8p52;
};

template <>
struct ExpNumbers<float16> : ExpNumbers<float> {
  static constexpr float ln2_high = 0x1.62e43p-1f;  // all of it, n times it need not be exact
  static constexpr float q[] = {0x1.0006b6p-1f, 0x1.571cc2p-3f, 0x1.52258ap-5f};
};

// The nearest whole number, |a| < 2^22 (float) or 2^51 (double).
template <class V>
DEPLOYOPS_INLINE V nearest_integer(V a) {
  constexpr auto magic = ExpNumbers<element_t<V>>::round_to_integer;
  return (a + magic) - magic;
}

// 2ⁿ for a whole number n that is the exponent of a normal number.
template <class V>
DEPLOYOPS_INLINE V power_of_two(V n) {
  using Numbers = ExpNumbers<element_t<V>>;
  using I = vec<int_of<element_t<V>>>;
  return (V)((I)(n + (Numbers::round_to_integer + Numbers::bias)) << Numbers::mantissa_bits);
}

// v·2ⁿ, rounded once, for whole numbers n from twice the least exponent of a normal number (−252, −2044) to 1.5
// times the largest. v is near 1 where the result may overflow.
template <class V>
DEPLOYOPS_INLINE V scale(V v, V n) {
#if defined(DEPLOYOPS_AVX512)
  if constexpr (sizeof(element_t<V>) == 4) {
    return (V)_mm512_maskz_scalef_ps(__mmask16(-1), (__m512)v, (__m512)n);
  } else {
    return (V)_mm512_maskz_scalef_pd(__mmask8(-1), (__m512d)v, (__m512d)n);
  }
#else
  const V half = nearest_integer(n * element_t<V>(0.5));
  return v * power_of_two(half) * power_of_two(n - half);
#endif
}

// The numbers n and p with exp(x + x_low) = 2ⁿ·(1 + p), |p| < 0.42, p with the relative accuracy of expm1. x_low,
// which may be left out, is a rounding error of x and far smaller.
template <class V>
struct ExpParts {
  V n, p;
};

template <class P, class V, class... Low>
DEPLOYOPS_INLINE ExpParts<V> exp_parts(V x, Low... x_low) {
  using Numbers = ExpNumbers<P>;
  const V n = fma(x, broadcast(Numbers::log2_e), broadcast(Numbers::round_to_integer)) - Numbers::round_to_integer;
  V r = fma(n, broadcast(-Numbers::ln2_high), x);
  r = (r + ... + x_low);
  if constexpr (!std::is_same_v<P, float16>) r = fma(n, broadcast(-Numbers::ln2_low), r);
  const V square = r * r;
  return {n, fma(square, polynomial(r, square, Numbers::q), r)};
}

template <class P, class V>
DEPLOYOPS_INLINE V exp_in_range_to(V x) {
  const ExpParts<V> e = exp_parts<P>(x);
  return scale(e.p + element_t<V>(1), e.n);
}

template <class P, class V>
DEPLOYOPS_INLINE V exp_nonpositive_to(V x) {
  return exp_in_range_to<P>(at_least(x, ExpNumbers<P>::lowest));
}
template <class P, class V>
DEPLOYOPS_INLINE V exp_to(V x) {
  return exp_nonpositive_to<P>(at_most(x, ExpNumbers<P>::highest));
}

}  // namespace detail

// exp(x), at most 1.1 ULP off. −∞ gives 0, ∞ gives ∞, NaN gives NaN; subnormal results are rounded like any other.
DEPLOYOPS_INLINE vec<float> exp(vec<float> x) { return detail::exp_to<float>(x); }
DEPLOYOPS_INLINE vec<double> exp(vec<double> x) { return detail::exp_to<double>(x); }

// The same where x ≤ 0 or NaN, a little cheaper.
DEPLOYOPS_INLINE vec<float> exp_nonpositive(vec<float> x) { return detail::exp_nonpositive_to<float>(x); }
DEPLOYOPS_INLINE vec<double> exp_nonpositive(vec<double> x) { return detail::exp_nonpositive_to<double>(x); }

}  // namespace deployops
