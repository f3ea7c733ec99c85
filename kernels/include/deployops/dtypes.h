// Element types that C++ lacks, and the type in which each is computed.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace deployops {

namespace detail {

template <class To, class From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline float float_from_half(uint16_t h) {
#if defined(__F16C__)
  return _cvtsh_ss(h);
#else
  // The exponent is moved by a multiplication, which is exact and takes care of subnormals.
  const uint32_t sign = uint32_t(h & 0x8000u) << 16;
  const float magnitude = bit_cast<float>(uint32_t(h & 0x7fffu) << 13) * 0x1p112f;
  const uint32_t special = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return bit_cast<float>(bit_cast<uint32_t>(magnitude) | sign | special);
#endif
}

// Rounded to nearest, ties to even. NaN stays NaN, its payload does not.
inline uint16_t half_from_float(float f) {
#if defined(__F16C__)
  return uint16_t(_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT));
#else
  const uint32_t bits = bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 rounds at the last bit of a half
    half = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  }
  return uint16_t(sign | half);
#endif
}

inline float float_from_bfloat(uint16_t b) { return bit_cast<float>(uint32_t(b) << 16); }

inline uint16_t bfloat_from_float(float f) {
  const uint32_t bits = bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40u);
  return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace detail

// IEEE 754 binary16. Converts to and from float like a number; arithmetic is done in float.
struct float16 {
  uint16_t bits;
  float16() = default;
  explicit float16(float f) : bits(detail::half_from_float(f)) {}
  operator float() const { return detail::float_from_half(bits); }
};

// The upper half of a float.
struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  explicit bfloat16(float f) : bits(detail::bfloat_from_float(f)) {}
  operator float() const { return detail::float_from_bfloat(bits); }
};

static_assert(std::is_trivially_copyable_v<float16> && sizeof(float16) == 2);
static_assert(std::is_trivially_copyable_v<bfloat16> && sizeof(bfloat16) == 2);

namespace detail {
template <class T> struct Wide { using type = T; };
template <> struct Wide<float16> { using type = float; };
template <> struct Wide<bfloat16> { using type = float; };
}  // namespace detail

// The type to compute in: float for halves, otherwise the type itself.
template <class T> using wide_t = typename detail::Wide<T>::type;

}  // namespace deployops
