// Launching a kernel: one way for the device and for its emulation on the CPU (trt_plugins/emulation).
//
// A kernel of an operator is a launcher of this form, in a file named after the operator:
//
//   template <class T>
//   cudaError_t swish(Stream stream, In<T> x, double beta, Out<T> y);
//
// `Stream` is a cudaStream_t with the number of a tactic: one of `constexpr int swish_tactics = …;` ways to compute the
// same. Where there is one way only, the constant is left out, and without workspace the first parameter may be a cudaStream_t.
//
// A launcher that needs scratch memory has a function beside it, with its parameters but for the stream. Of the tensors only
// the sizes are there, outputs that the data decides at their upper bounds; larger tensors must not need less:
//
//   template <class T>
//   size_t swish_workspace(In<T> x, double beta, Out<T> y);   // bytes, enough for every tactic
//
// `stream.workspace` holds them then: undefined content, aligned to 256 bytes, for this call alone.
//
// Launchers check shapes (`require`), hand back CUDA's errors, allocate nothing and wait for nothing.
#pragma once

#include <utility>

#include "deployops/cuda/types.h"

namespace deployops {

struct Stream {
  cudaStream_t stream = nullptr;
  int tactic = 0;
  void* workspace = nullptr;
  operator cudaStream_t() const { return stream; }
};

// Instead of kernel<<<grid, block, bytes, stream>>>(…), with the error of this very launch.
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                   A&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<A>(arguments)...);
}

// Instead of extern __shared__ T name[]: the memory whose size a launch gives, aligned to 16 bytes.
template <class T>
__device__ inline T* dynamic_shared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char deployops_dynamic_shared[];
  return reinterpret_cast<T*>(deployops_dynamic_shared);
#else
  return static_cast<T*>(emulation::current_thread->dynamic_shared);
#endif
}

// The emulation says less, so that it takes the ways of huge tensors with small ones.
#ifndef DEPLOYOPS_MOST_BLOCKS
#define DEPLOYOPS_MOST_BLOCKS 0x7fffffff
#endif
#ifndef DEPLOYOPS_MOST_SHORT_INDICES
#define DEPLOYOPS_MOST_SHORT_INDICES (1 << 30)
#endif

// Blocks of a grid that goes over `count` things in steps of its size.
inline unsigned blocks_for(int64_t count, int64_t per_block) {
  const int64_t blocks = (count + per_block - 1) / per_block;
  return unsigned(blocks < DEPLOYOPS_MOST_BLOCKS ? blocks : DEPLOYOPS_MOST_BLOCKS);
}

// Whether indices below `count`, and a step beyond, fit in 32 bits: half the registers, a fraction of the time of a
// division.
inline bool fits_in_32_bits(int64_t count) { return count < DEPLOYOPS_MOST_SHORT_INDICES; }

}  // namespace deployops
