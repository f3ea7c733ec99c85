// What the rounding of a product leaves out.
#pragma once

#include "deployops/simd.h"

namespace deployops {

namespace detail {
// a without the lower half of its digits, so that products of such numbers are exact.
template <class V>
DEPLOYOPS_INLINE V upper_digits(V a) {
  using I = vec<int_of<element_t<V>>>;
  constexpr int dropped = sizeof(element_t<V>) == 4 ? 12 : 27;
  return (V)((I)a & ~((int_of<element_t<V>>(1) << dropped) - 1));
}
}  // namespace detail

// a·b − product, where product is a·b rounded: exact, unless it underflows or product is not finite.
template <class V>
DEPLOYOPS_INLINE V rounding_of_product(V a, V b, V product) {
#if defined(DEPLOYOPS_AVX512) || defined(DEPLOYOPS_AVX2) || defined(__aarch64__)
  return fma(a, b, -product);
#else
  const V a1 = detail::upper_digits(a), b1 = detail::upper_digits(b);
  const V a2 = a - a1, b2 = b - b1;
  return ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2;
#endif
}

}  // namespace deployops
