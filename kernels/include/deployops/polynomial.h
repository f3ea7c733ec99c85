// Polynomials of vectors.
#pragma once

#include "deployops/simd.h"

namespace deployops {

// Σ c[k]·xᵏ. The even and the odd powers are summed separately, in powers of `square` = x²: half as long to wait for.
template <class V, int N>
DEPLOYOPS_INLINE V polynomial(V x, V square, const element_t<V> (&c)[N]) {
  static_assert(N >= 3);
  V even = broadcast(c[(N - 1) / 2 * 2]), odd = broadcast(c[N / 2 * 2 - 1]);
#pragma GCC unroll 32
  for (int k = (N - 1) / 2 * 2 - 2; k >= 0; k -= 2) even = fma(even, square, broadcast(c[k]));
#pragma GCC unroll 32
  for (int k = N / 2 * 2 - 3; k >= 1; k -= 2) odd = fma(odd, square, broadcast(c[k]));
  return fma(odd, x, even);
}

}  // namespace deployops
