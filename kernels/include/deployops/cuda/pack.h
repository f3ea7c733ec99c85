// N numbers that lie behind one another, read and written in one access: 16 bytes are the most that a thread can.
#pragma once

#include "deployops/cuda/types.h"

namespace deployops {

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

template <class T> constexpr int full_pack = int(16 / sizeof(T));

template <int N, class T>
__device__ inline void read_pack(const T* from, wide_t<T> (&to)[N]) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int k = 0; k < N; ++k) to[k] = widen(pack.at[k]);
}

template <int N, class T>
__device__ inline void write_pack(T* to, const wide_t<T> (&from)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int k = 0; k < N; ++k) pack.at[k] = narrow<T>(from[k]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// Whether 16-byte accesses may begin at all of these addresses. A null pointer is one that is not used.
template <class... T>
bool aligned_for_packs(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace deployops
