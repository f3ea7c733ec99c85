// Vectors of the widest registers that the file is compiled for: 64 bytes (AVX-512), 32 (AVX2), 16 (SSE2, NEON).
//
// They are the compiler's own vector types: + − * / and comparisons work, a comparison gives a mask, and
// `mask ? a : b` selects. Halves are loaded as float and rounded once when they are stored.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "deployops/dtypes.h"

#define DEPLOYOPS_INLINE inline __attribute__((always_inline))

namespace deployops {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define DEPLOYOPS_AVX512 1
constexpr int vector_bytes = 64;
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define DEPLOYOPS_AVX2 1
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

namespace detail {
template <class W, int N>
struct VecOf {
  typedef W type __attribute__((vector_size(sizeof(W) * N)));
};
}  // namespace detail

// Elements in a vector of W (float, double, int32_t, …).
template <class W> constexpr int lanes = vector_bytes / int(sizeof(W));
template <class W> using vec = typename detail::VecOf<W, lanes<W>>::type;
template <class V> using element_t = std::decay_t<decltype(std::declval<V&>()[0])>;

// The integers of the same width, and so the type of a mask.
template <class W> using int_of = std::conditional_t<sizeof(W) == 8, int64_t, int32_t>;

template <class W>
DEPLOYOPS_INLINE vec<W> broadcast(W value) {
  return value - vec<W>{};  // unlike 0 + value, it keeps −0, and the compiler sees that it is a copy
}

template <class To, class From>
DEPLOYOPS_INLINE To reinterpret(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return (To)from;
}

// a·b + c, rounded once where the processor can, else twice.
DEPLOYOPS_INLINE vec<float> fma(vec<float> a, vec<float> b, vec<float> c) {
#if defined(DEPLOYOPS_AVX512)
  return (vec<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(DEPLOYOPS_AVX2)
  return (vec<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (vec<float>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
DEPLOYOPS_INLINE vec<double> fma(vec<double> a, vec<double> b, vec<double> c) {
#if defined(DEPLOYOPS_AVX512)
  return (vec<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(DEPLOYOPS_AVX2)
  return (vec<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
  return (vec<double>)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
  return a * b + c;
#endif
}

DEPLOYOPS_INLINE vec<float> sqrt(vec<float> a) {
#if defined(DEPLOYOPS_AVX512)
  return (vec<float>)_mm512_maskz_sqrt_ps(__mmask16(-1), (__m512)a);
#elif defined(DEPLOYOPS_AVX2)
  return (vec<float>)_mm256_sqrt_ps((__m256)a);
#else
  for (int i = 0; i < lanes<float>; ++i) a[i] = __builtin_sqrtf(a[i]);
  return a;
#endif
}
DEPLOYOPS_INLINE vec<double> sqrt(vec<double> a) {
#if defined(DEPLOYOPS_AVX512)
  return (vec<double>)_mm512_maskz_sqrt_pd(__mmask8(-1), (__m512d)a);
#elif defined(DEPLOYOPS_AVX2)
  return (vec<double>)_mm256_sqrt_pd((__m256d)a);
#else
  for (int i = 0; i < lanes<double>; ++i) a[i] = __builtin_sqrt(a[i]);
  return a;
#endif
}

template <class V>
DEPLOYOPS_INLINE V abs(V a) {
  using I = vec<int_of<element_t<V>>>;
  constexpr auto sign = int_of<element_t<V>>(1) << (sizeof(element_t<V>) * 8 - 1);
  return (V)((I)a & ~sign);
}

// The magnitude of a with the sign of b.
template <class V>
DEPLOYOPS_INLINE V copysign(V a, V b) {
  using I = vec<int_of<element_t<V>>>;
  constexpr auto sign = int_of<element_t<V>>(1) << (sizeof(element_t<V>) * 8 - 1);
  return (V)(((I)a & ~sign) | ((I)b & sign));
}

// The larger one; NaN if either is (as torch.maximum, unlike fmax).
template <class V>
DEPLOYOPS_INLINE V maximum(V a, V b) {
  return ((a > b) | (a != a)) ? a : b;
}
template <class V>
DEPLOYOPS_INLINE V minimum(V a, V b) {
  return ((a < b) | (a != a)) ? a : b;
}

// The smaller one of a and a limit that is not NaN, and the larger one; a NaN in a stays. One instruction on x86,
// which `minimum` and `maximum` are not.
template <class V>
DEPLOYOPS_INLINE V at_most(V a, element_t<V> limit) {
  const V l = broadcast(limit);
#if defined(DEPLOYOPS_AVX512)
  if constexpr (sizeof(element_t<V>) == 4) {
    return (V)_mm512_maskz_min_ps(__mmask16(-1), (__m512)l, (__m512)a);
  } else {
    return (V)_mm512_maskz_min_pd(__mmask8(-1), (__m512d)l, (__m512d)a);
  }
#elif defined(DEPLOYOPS_AVX2)
  if constexpr (sizeof(element_t<V>) == 4) {
    return (V)_mm256_min_ps((__m256)l, (__m256)a);
  } else {
    return (V)_mm256_min_pd((__m256d)l, (__m256d)a);
  }
#elif defined(__x86_64__)
  if constexpr (sizeof(element_t<V>) == 4) {
    return (V)_mm_min_ps((__m128)l, (__m128)a);
  } else {
    return (V)_mm_min_pd((__m128d)l, (__m128d)a);
  }
#else
  return l < a ? l : a;
#endif
}
template <class V>
DEPLOYOPS_INLINE V at_least(V a, element_t<V> limit) {
  const V l = broadcast(limit);
#if defined(DEPLOYOPS_AVX512)
  if constexpr (sizeof(element_t<V>) == 4) {
    return (V)_mm512_maskz_max_ps(__mmask16(-1), (__m512)l, (__m512)a);
  } else {
    return (V)_mm512_maskz_max_pd(__mmask8(-1), (__m512d)l, (__m512d)a);
  }
#elif defined(DEPLOYOPS_AVX2)
  if constexpr (sizeof(element_t<V>) == 4) {
    return (V)_mm256_max_ps((__m256)l, (__m256)a);
  } else {
    return (V)_mm256_max_pd((__m256d)l, (__m256d)a);
  }
#elif defined(__x86_64__)
  if constexpr (sizeof(element_t<V>) == 4) {
    return (V)_mm_max_ps((__m128)l, (__m128)a);
  } else {
    return (V)_mm_max_pd((__m128d)l, (__m128d)a);
  }
#else
  return l > a ? l : a;
#endif
}

// --- memory -------------------------------------------------------------------------------------------------

// Some AVX-512 intrinsics are called in their masked form, all lanes on: GCC 12 warns inside the plain form.

namespace detail {
template <class U, int N>
DEPLOYOPS_INLINE typename VecOf<U, N>::type load_bits(const void* p) {
  typename VecOf<U, N>::type v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

using bits16 = VecOf<uint16_t, lanes<float>>::type;  // a vector of halves

DEPLOYOPS_INLINE vec<float> widen(float16, bits16 h) {
#if defined(DEPLOYOPS_AVX512)
  return (vec<float>)_mm512_maskz_cvtph_ps(__mmask16(-1), (__m256i)h);
#elif defined(DEPLOYOPS_AVX2)
  return (vec<float>)_mm256_cvtph_ps((__m128i)h);
#elif defined(__aarch64__)
  return (vec<float>)vcvt_f32_f16(vreinterpret_f16_u16((uint16x4_t)h));
#else
  using U = vec<uint32_t>;
  const U wide = __builtin_convertvector(h, U);
  const U sign = (wide & 0x8000u) << 16;
  const vec<float> magnitude = (vec<float>)((wide & 0x7fffu) << 13) * 0x1p112f;
  const U special = (U)((wide & 0x7c00u) == 0x7c00u) & 0x7f800000u;
  return (vec<float>)((U)magnitude | sign | special);
#endif
}
DEPLOYOPS_INLINE vec<float> widen(bfloat16, bits16 b) {
  return (vec<float>)(__builtin_convertvector(b, vec<uint32_t>) << 16);
}

DEPLOYOPS_INLINE bits16 narrow(float16, vec<float> f) {
#if defined(DEPLOYOPS_AVX512)
  return (bits16)_mm512_maskz_cvtps_ph(__mmask16(-1), (__m512)f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(DEPLOYOPS_AVX2)
  return (bits16)_mm256_cvtps_ph((__m256)f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  return (bits16)vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)f));
#else
  using U = vec<uint32_t>;
  const U bits = (U)f;
  const U sign = (bits >> 16) & 0x8000u;
  const U magnitude = bits & 0x7fffffffu;
  const U subnormal = (U)((vec<float>)magnitude + 0.5f) - 0x3f000000u;
  const U normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  U half = (vec<int32_t>)magnitude < 0x38800000 ? subnormal : normal;
  half = (vec<int32_t>)magnitude >= 0x477ff000 ? U{} + 0x7c00u : half;
  half = (vec<int32_t>)magnitude > 0x7f800000 ? U{} + 0x7e00u : half;
  return __builtin_convertvector(half | sign, bits16);
#endif
}
DEPLOYOPS_INLINE bits16 narrow(bfloat16, vec<float> f) {
  using U = vec<uint32_t>;
  const U bits = (U)f;
  const U rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const U quiet = bits | 0x400000u;
  const U kept = (vec<int32_t>)(bits & 0x7fffffffu) > 0x7f800000 ? quiet : rounded;
  return __builtin_convertvector(kept >> 16, bits16);
}
}  // namespace detail

// The next lanes<wide_t<T>> elements from p on, any alignment.
template <class T>
DEPLOYOPS_INLINE vec<wide_t<T>> load(const T* p) {
  if constexpr (std::is_same_v<T, wide_t<T>>) {
    vec<T> v;
    std::memcpy(&v, p, sizeof v);
    return v;
  } else {
    return detail::widen(T{}, detail::load_bits<uint16_t, lanes<float>>(p));
  }
}

// The next n < lanes elements; 0 in the lanes after them. Nothing beyond them is read.
template <class T>
DEPLOYOPS_INLINE vec<wide_t<T>> load(const T* p, int n) {
#if defined(DEPLOYOPS_AVX512)
  if constexpr (std::is_same_v<T, float>) {
    return (vec<float>)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p);
  } else if constexpr (std::is_same_v<T, double>) {
    return (vec<double>)_mm512_maskz_loadu_pd(__mmask8((1u << n) - 1), p);
  } else {
    return detail::widen(T{}, (detail::bits16)_mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1), p));
  }
#else
#if defined(DEPLOYOPS_AVX2)
  if constexpr (std::is_same_v<T, wide_t<T>>) {
    constexpr int L = lanes<T>;
    alignas(32) static constexpr int64_t ones_and_zeros[8] = {-1, -1, -1, -1, 0, 0, 0, 0};
    const auto* mask = reinterpret_cast<const char*>(ones_and_zeros) + (L - n) * sizeof(T);
    const __m256i live = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(mask));
    if constexpr (sizeof(T) == 4) {
      return (vec<float>)_mm256_maskload_ps(p, live);
    } else {
      return (vec<double>)_mm256_maskload_pd(p, live);
    }
  }
#endif
  T held[lanes<wide_t<T>>];
  std::memset(held, 0, sizeof held);
  std::memcpy(held, p, size_t(n) * sizeof(T));
  return load<T>(held);
#endif
}

template <class T>
DEPLOYOPS_INLINE void store(T* p, vec<wide_t<T>> v) {
  if constexpr (std::is_same_v<T, wide_t<T>>) {
    std::memcpy(p, &v, sizeof v);
  } else {
    const detail::bits16 bits = detail::narrow(T{}, v);
    std::memcpy(p, &bits, sizeof bits);
  }
}

// The first n < lanes elements of v. Nothing beyond them is written.
template <class T>
DEPLOYOPS_INLINE void store(T* p, vec<wide_t<T>> v, int n) {
#if defined(DEPLOYOPS_AVX512)
  if constexpr (std::is_same_v<T, float>) {
    _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), (__m512)v);
  } else if constexpr (std::is_same_v<T, double>) {
    _mm512_mask_storeu_pd(p, __mmask8((1u << n) - 1), (__m512d)v);
  } else {
    _mm256_mask_storeu_epi16(p, __mmask16((1u << n) - 1), (__m256i)detail::narrow(T{}, v));
  }
#else
  T held[lanes<wide_t<T>>];
  store<T>(held, v);
  std::memcpy(p, held, size_t(n) * sizeof(T));
#endif
}

// Whether an output of n elements is beyond the last cache of most processors. One that is not is better left there:
// two threads read and write 16 MB there in half the time that memory takes.
template <class T>
constexpr bool larger_than_caches(int64_t n) {
  return n >= (int64_t(1) << 25) / int64_t(sizeof(T));
}

// As `store`, past the caches: for outputs larger than they are. p is aligned to lanes · sizeof(T); end with
// `stream_fence`.
template <class T>
DEPLOYOPS_INLINE void stream(T* p, vec<wide_t<T>> v) {
#if defined(DEPLOYOPS_AVX512) || defined(DEPLOYOPS_AVX2)
  auto put = [p](auto bits) {
    if constexpr (sizeof bits == 64) {
#if defined(DEPLOYOPS_AVX512)
      _mm512_stream_si512((__m512i*)p, (__m512i)bits);
#endif
    } else if constexpr (sizeof bits == 32) {
      _mm256_stream_si256((__m256i*)p, (__m256i)bits);
    } else {
      _mm_stream_si128((__m128i*)p, (__m128i)bits);
    }
  };
  if constexpr (std::is_same_v<T, wide_t<T>>) {
    put(v);
  } else {
    put(detail::narrow(T{}, v));
  }
#else
  store<T>(p, v);
#endif
}
DEPLOYOPS_INLINE void stream_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// --- across the lanes ---------------------------------------------------------------------------------------

namespace detail {
// The lower and the upper half of a vector, which stays in its register (a variable that `memcpy` reads does not).
template <size_t first, class V, size_t... k>
DEPLOYOPS_INLINE auto half_from(V v, std::index_sequence<k...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(v, v, (first + k)...);
#else
  typename VecOf<element_t<V>, sizeof...(k)>::type half;
  std::memcpy(&half, reinterpret_cast<const char*>(&v) + first * sizeof(element_t<V>), sizeof half);
  return half;
#endif
}
}  // namespace detail

// All lanes combined by f, in pairs.
template <class V, class F>
DEPLOYOPS_INLINE element_t<V> fold(V v, F&& f) {
  constexpr size_t half = sizeof(V) / sizeof(element_t<V>) / 2;
  if constexpr (half == 1) {
    return f(v[0], v[1]);
  } else {
    constexpr std::make_index_sequence<half> each{};
    return fold(f(detail::half_from<0>(v, each), detail::half_from<half>(v, each)), f);
  }
}
// The sum of all lanes, added in pairs.
template <class V>
DEPLOYOPS_INLINE element_t<V> sum(V v) {
  return fold(v, [](auto a, auto b) { return a + b; });
}

// The largest lane; NaN if one is.
template <class V>
DEPLOYOPS_INLINE element_t<V> largest(V v) {
  return fold(v, [](auto a, auto b) { return (a > b) | (a != a) ? a : b; });
}

// Whether a comparison holds in any lane.
template <class M>
DEPLOYOPS_INLINE bool any(M mask) {
  constexpr int n = int(sizeof(M) / sizeof(element_t<M>));
  element_t<M> found = 0;
  for (int i = 0; i < n; ++i) found |= mask[i];
  return found != 0;
}

}  // namespace deployops
