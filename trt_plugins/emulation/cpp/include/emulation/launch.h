// The part of CUDA's runtime interface that launchers of kernels need. Streams run at once: when a call returns, the
// device has done it.
#pragma once

#include <cstddef>
#include <utility>

#include "keywords.h"

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotSupported = 801,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorUnknown = 999
};
typedef struct CUstream_st* cudaStream_t;
// The default streams, by another name.
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

struct cudaLaunchAttribute {
  int id;
  unsigned char value[64];
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

const char* cudaGetErrorName(cudaError_t);
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t = nullptr);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr);
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t);

namespace deployops::emulation {

cudaError_t allow_dynamic_shared(const void* kernel, size_t bytes);
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, void (*body)(void* call), void* call);

template <class... P, class... A>
cudaError_t launch_kernel(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  auto call = [&] { kernel(static_cast<P>(arguments)...); };
  return launch(*config, reinterpret_cast<const void*>(kernel), [](void* c) { (*static_cast<decltype(call)*>(c))(); },
                &call);
}

}  // namespace deployops::emulation

template <class... P, class... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  return deployops::emulation::launch_kernel(config, kernel, std::forward<A>(arguments)...);
}

template <class K>
inline cudaError_t cudaFuncSetAttribute(K* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  return deployops::emulation::allow_dynamic_shared(reinterpret_cast<const void*>(kernel), size_t(value));
}
template <class T>
inline cudaError_t cudaMallocAsync(T** memory, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void**>(memory), bytes, stream);
}
