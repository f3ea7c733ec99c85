// The words that CUDA adds to C++, and the thread that is running.
#pragma once

#include "vector_types.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __constant__ static
#define __grid_constant__
#define __align__(n) alignas(n)
#define __CUDA_ON_CPU__ 1

// A thread of the operating system runs one block at a time, so that its own variables are the shared memory of that
// block. AddressSanitizer puts guards around plain static variables only; there is one such thread then.
#if defined(DEPLOYOPS_EMULATION_PLAIN_STATIC)
#define __shared__ static
#else
#define __shared__ static thread_local
#endif

// So many instructions that do nothing before the kernel's first, and their place in a list (`launch_bound`). g++ takes a number
// that depends on template parameters here; clang does not.
#if defined(__GNUC__) && !defined(__clang__)
#define __launch_bounds__(...)                                                                       \
  __attribute__((patchable_function_entry(deployops::emulation::most_block_threads(__VA_ARGS__), \
                                          deployops::emulation::most_block_threads(__VA_ARGS__))))
#else
#define __launch_bounds__(...)
#endif

namespace deployops::emulation {

constexpr unsigned most_block_threads(unsigned threads, unsigned = 0, unsigned = 0) { return threads; }

// A CUDA thread as its kernel sees it.
struct Thread {
  uint3 thread_index, block_index;
  unsigned number, lane, warp;  // in the block; in the warp; of the warp
  void* dynamic_shared;
};

// The thread that runs on this thread of the operating system; null outside kernels.
extern thread_local Thread* current_thread;

// Where a kernel's source calls something.
struct Place {
  const char* file;
  int line;
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

}  // namespace deployops::emulation

// Variables and not macros: `config.gridDim` is a member of CUDA's own.
extern __thread uint3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;
