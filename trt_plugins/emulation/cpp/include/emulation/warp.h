// What threads do together: barriers, shuffles, votes. Each call is a meeting, which the runtime holds the threads to:
// all that are asked for come, and to the same place.
#pragma once

#include <cstring>

#include "keywords.h"

namespace deployops::emulation {

enum class Reduction { none, count, all, any };

// The barrier of the block; returns the reduction over its threads.
int block_barrier(Reduction, int value, Place);

// The lanes of `mask` meet. With `size`, each brings so many bytes and takes those of lane `source`, if it is one of
// them; a source of −1 takes back its own. With `orders_memory`, what a lane wrote before is seen by the others after.
void warp_exchange(unsigned mask, const void* brought, void* taken, size_t size, int source, bool orders_memory, Place);

// The lanes of `mask` whose value is not 0.
unsigned warp_ballot(unsigned mask, bool value, Place);

// The lanes of `mask` with the same bits.
unsigned warp_match(unsigned mask, uint64_t bits, Place);

void require_width(int width, Place);

template <class T>
T shuffle(unsigned mask, T value, int source, bool in_segment, Place place) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  T taken = value;
  warp_exchange(mask, &value, &taken, sizeof(T), in_segment ? source : -1, false, place);
  return taken;
}

inline int lane_number() { return int(current_thread->lane); }

}  // namespace deployops::emulation

inline void __syncthreads(deployops::emulation::Place p = deployops::emulation::Place::here()) {
  deployops::emulation::block_barrier(deployops::emulation::Reduction::none, 0, p);
}
inline int __syncthreads_count(int value, deployops::emulation::Place p = deployops::emulation::Place::here()) {
  return deployops::emulation::block_barrier(deployops::emulation::Reduction::count, value != 0, p);
}
inline int __syncthreads_and(int value, deployops::emulation::Place p = deployops::emulation::Place::here()) {
  return deployops::emulation::block_barrier(deployops::emulation::Reduction::all, value != 0, p);
}
inline int __syncthreads_or(int value, deployops::emulation::Place p = deployops::emulation::Place::here()) {
  return deployops::emulation::block_barrier(deployops::emulation::Reduction::any, value != 0, p);
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       deployops::emulation::Place p = deployops::emulation::Place::here()) {
  deployops::emulation::warp_exchange(mask, nullptr, nullptr, 0, -1, true, p);
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32,
                     deployops::emulation::Place p = deployops::emulation::Place::here()) {
  deployops::emulation::require_width(width, p);
  const int lane = deployops::emulation::lane_number();
  return deployops::emulation::shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), true, p);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                         deployops::emulation::Place p = deployops::emulation::Place::here()) {
  deployops::emulation::require_width(width, p);
  const int lane = deployops::emulation::lane_number(), source = lane ^ bits;
  return deployops::emulation::shuffle(mask, value, source, source < 32 && source <= (lane | (width - 1)), p);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                        deployops::emulation::Place p = deployops::emulation::Place::here()) {
  deployops::emulation::require_width(width, p);
  const int lane = deployops::emulation::lane_number();
  return deployops::emulation::shuffle(mask, value, lane - int(delta), (lane & (width - 1)) >= int(delta), p);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          deployops::emulation::Place p = deployops::emulation::Place::here()) {
  deployops::emulation::require_width(width, p);
  const int lane = deployops::emulation::lane_number();
  return deployops::emulation::shuffle(mask, value, lane + int(delta), (lane & (width - 1)) + int(delta) < width, p);
}

inline unsigned __ballot_sync(unsigned mask, int value,
                              deployops::emulation::Place p = deployops::emulation::Place::here()) {
  return deployops::emulation::warp_ballot(mask, value != 0, p);
}
inline int __any_sync(unsigned mask, int value,
                      deployops::emulation::Place p = deployops::emulation::Place::here()) {
  return deployops::emulation::warp_ballot(mask, value != 0, p) != 0;
}
inline int __all_sync(unsigned mask, int value,
                      deployops::emulation::Place p = deployops::emulation::Place::here()) {
  return deployops::emulation::warp_ballot(mask, value != 0, p) == mask;
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value,
                                 deployops::emulation::Place p = deployops::emulation::Place::here()) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return deployops::emulation::warp_match(mask, bits, p);
}

#define DEPLOYOPS_REDUCE_SYNC(name, combined)                                                               \
  template <class T>                                                                                        \
  inline T __reduce_##name##_sync(unsigned mask, T value,                                                   \
                                  deployops::emulation::Place p = deployops::emulation::Place::here()) {    \
    static_assert(std::is_integral_v<T> && sizeof(T) == 4);                                                 \
    T result = value;                                                                                       \
    bool first = true;                                                                                      \
    for (int lane = 0; lane < 32; ++lane) {                                                                 \
      if (!(mask >> lane & 1)) continue;                                                                    \
      const T other = deployops::emulation::shuffle(mask, value, lane, true, p);                            \
      result = first ? other : T(combined);                                                                 \
      first = false;                                                                                        \
    }                                                                                                       \
    return result;                                                                                          \
  }
DEPLOYOPS_REDUCE_SYNC(add, unsigned(result) + unsigned(other))
DEPLOYOPS_REDUCE_SYNC(min, result < other ? result : other)
DEPLOYOPS_REDUCE_SYNC(max, result > other ? result : other)
DEPLOYOPS_REDUCE_SYNC(and, result & other)
DEPLOYOPS_REDUCE_SYNC(or, result | other)
DEPLOYOPS_REDUCE_SYNC(xor, result ^ other)
#undef DEPLOYOPS_REDUCE_SYNC
