// Atomic operations and fences. Blocks run on several threads of the operating system, so these are real ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "keywords.h"

#if defined(__SANITIZE_THREAD__)
#define DEPLOYOPS_UNSEEN __attribute__((noinline, no_sanitize("thread")))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DEPLOYOPS_UNSEEN __attribute__((noinline, no_sanitize("thread")))
#endif
#endif
#ifndef DEPLOYOPS_UNSEEN
#define DEPLOYOPS_UNSEEN
#endif

namespace deployops::emulation {

// Told to the race detector, where there is one.
void saw_atomic(const void* address, size_t size, const void* caller);
void saw_fence();

template <class T> struct AtomicBits {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "no atomic operation of this size");
  using type = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
};

// *address = f(*address), in one step; what was there before.
template <class T, class F>
DEPLOYOPS_UNSEEN T atomic_update(T* address, F f) {
  using Bits = typename AtomicBits<T>::type;
#if defined(DEPLOYOPS_EMULATION_RACES)
  saw_atomic(address, sizeof(T), __builtin_return_address(0));
#endif
  Bits* bits = reinterpret_cast<Bits*>(address);
  Bits before = __atomic_load_n(bits, __ATOMIC_SEQ_CST), after;
  T old_value, new_value;
  do {
    std::memcpy(&old_value, &before, sizeof(T));
    new_value = f(old_value);
    std::memcpy(&after, &new_value, sizeof(T));
  } while (!__atomic_compare_exchange_n(bits, &before, after, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return old_value;
}

template <class T> struct Same { using type = T; };
template <class T> using same_t = typename Same<T>::type;

}  // namespace deployops::emulation

template <class T> inline T atomicAdd(T* p, deployops::emulation::same_t<T> v) {
  return deployops::emulation::atomic_update(p, [v](T old) { return T(old + v); });
}
template <class T> inline T atomicSub(T* p, deployops::emulation::same_t<T> v) {
  return deployops::emulation::atomic_update(p, [v](T old) { return T(old - v); });
}
template <class T> inline T atomicMax(T* p, deployops::emulation::same_t<T> v) {
  return deployops::emulation::atomic_update(p, [v](T old) { return old < v ? v : old; });
}
template <class T> inline T atomicMin(T* p, deployops::emulation::same_t<T> v) {
  return deployops::emulation::atomic_update(p, [v](T old) { return v < old ? v : old; });
}
template <class T> inline T atomicExch(T* p, deployops::emulation::same_t<T> v) {
  return deployops::emulation::atomic_update(p, [v](T) { return v; });
}
template <class T> inline T atomicAnd(T* p, deployops::emulation::same_t<T> v) {
  return deployops::emulation::atomic_update(p, [v](T old) { return T(old & v); });
}
template <class T> inline T atomicOr(T* p, deployops::emulation::same_t<T> v) {
  return deployops::emulation::atomic_update(p, [v](T old) { return T(old | v); });
}
template <class T> inline T atomicXor(T* p, deployops::emulation::same_t<T> v) {
  return deployops::emulation::atomic_update(p, [v](T old) { return T(old ^ v); });
}
template <class T>
inline T atomicCAS(T* p, deployops::emulation::same_t<T> expected, deployops::emulation::same_t<T> v) {
  return deployops::emulation::atomic_update(p, [expected, v](T old) { return old == expected ? v : old; });
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return deployops::emulation::atomic_update(p, [limit](unsigned old) { return old >= limit ? 0 : old + 1; });
}
inline unsigned atomicDec(unsigned* p, unsigned limit) {
  return deployops::emulation::atomic_update(
      p, [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

inline void __threadfence() { deployops::emulation::saw_fence(); }
inline void __threadfence_block() { deployops::emulation::saw_fence(); }
inline void __threadfence_system() { deployops::emulation::saw_fence(); }
