// The logistic function 1/(1 + exp(−x)), its product with a number, and tanh.
//
// T is the type that a result is rounded to. For halves fewer digits are computed: at most 0.55 ULP of float16 off, 0.51
// of bfloat16.
#pragma once

#include "deployops/exp.h"

namespace deployops {

namespace detail {

template <class W> struct LogisticNumbers;
template <> struct LogisticNumbers<float> {
  // x·exp(z) is 0 for every finite x where z is below −(128 + 150)·ln 2.
  static constexpr float product_is_zero = -193.0f;
  static constexpr float adds_nothing = 40.0f;  // z from which on 1 + exp(−z) is 1
  // 1 + m·2ⁿ is m·2ⁿ from this n on. What n has beyond it is left out of the sum, in two parts: the first of
  // them is at least `first_part`.
  static constexpr float largest_in_sum = 64.0f, first_part = -110.0f;
  static constexpr float tanh_is_one = -20.0f;  // of −2|x|
};
template <> struct LogisticNumbers<double> {
  static constexpr double product_is_zero = -1456.0, adds_nothing = 80.0;
  static constexpr double largest_in_sum = 512.0, first_part = -900.0;
  static constexpr double tanh_is_one = -40.0;
};

template <class P, class V>
DEPLOYOPS_INLINE V logistic_to(V x) {
  using W = element_t<V>;
  const V e = exp_nonpositive_to<P>(-abs(x));
  return (x < W(0) ? e : broadcast(W(1))) / (e + W(1));
}

template <class P, class V, class... Low>
DEPLOYOPS_INLINE V times_logistic_to(V x, V z, Low... z_low) {
  using W = element_t<V>;
  using Numbers = LogisticNumbers<W>;
  const auto zero = z < Numbers::product_is_zero;
  // x/(1 + exp(−z)). Beyond the limits z may be infinite, and its rounding error no number.
  const ExpParts<V> e = exp_parts<P>(at_most(at_least(-z, -Numbers::adds_nothing), -Numbers::product_is_zero),
                                     abs(z) < -Numbers::product_is_zero ? -z_low : V{}...);
  const V n = at_most(e.n, Numbers::largest_in_sum);
  const V rest = n - e.n;
#if defined(DEPLOYOPS_AVX512)
  const V quotient = x / (scale(e.p + W(1), n) + W(1));
  return scale(quotient, zero ? broadcast(-W(__builtin_inf())) : rest);  // ∞·2^−∞ is NaN
#else
  const V quotient = x / ((e.p + W(1)) * power_of_two(n) + W(1));
  const V first = at_least(rest, Numbers::first_part);
  const V factor = power_of_two(rest - first);
  return quotient * power_of_two(first) * (zero ? V{} : factor);  // ∞·0 is NaN
#endif
}

template <class P, class V>
DEPLOYOPS_INLINE V tanh_to(V x) {
  using W = element_t<V>;
  // With m = exp(−2|x|) − 1, which does not cancel near 0, it is −m/(2 + m).
  const ExpParts<V> e = exp_parts<P>(at_least(W(-2) * abs(x), LogisticNumbers<W>::tanh_is_one));
  const V power = power_of_two(e.n);
  const V m = fma(power, e.p, power - W(1));
  return copysign(m / (m + W(2)), x);
}

}  // namespace detail

// 1/(1 + exp(−x)), at most 2.5 ULP off. Small results keep their digits down to the last subnormal number.
template <class T>
DEPLOYOPS_INLINE vec<wide_t<T>> logistic(vec<wide_t<T>> x) {
  return detail::logistic_to<detail::precision<T>>(x);
}

// x·logistic(z), at most 2.5 ULP off, also where logistic(z) is subnormal or 0 and the product is not. An infinite x
// gives NaN where logistic(z) is 0, as ∞·0 does.
template <class T>
DEPLOYOPS_INLINE vec<wide_t<T>> times_logistic(vec<wide_t<T>> x, vec<wide_t<T>> z) {
  return detail::times_logistic_to<detail::precision<T>>(x, z);
}
// x·logistic(z + z_low), z_low being what the rounding of z left out: an error of z comes back z times as large.
template <class T>
DEPLOYOPS_INLINE vec<wide_t<T>> times_logistic(vec<wide_t<T>> x, vec<wide_t<T>> z, vec<wide_t<T>> z_low) {
  return detail::times_logistic_to<detail::precision<T>>(x, z, z_low);
}

// At most 2.7 ULP off. Keeps the sign of 0; tiny x give themselves.
template <class T>
DEPLOYOPS_INLINE vec<wide_t<T>> tanh(vec<wide_t<T>> x) {
  return detail::tanh_to<detail::precision<T>>(x);
}

}  // namespace deployops
