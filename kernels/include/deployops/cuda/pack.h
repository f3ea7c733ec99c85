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

// Bytes from the last address at which a 16-byte access may begin.
template <class T>
__host__ __device__ inline unsigned past_pack_boundary(const T* pointer) {
  return unsigned(reinterpret_cast<uintptr_t>(pointer) % 16);
}

// Whether 16-byte accesses may begin at all of these addresses. A null pointer is one that is not used.
template <class... T>
bool aligned_for_packs(const T*... pointers) {
  return ((past_pack_boundary(pointers) == 0) && ...);
}

// Whether these addresses lie alike: so many numbers on, 16-byte accesses may begin at all of them.
template <class T, class... More>
bool alike_for_packs(const T* first, const More*... more) {
  return ((past_pack_boundary(first) == past_pack_boundary(more)) && ...);
}

}  // namespace deployops
