// A CUDA runtime that runs no kernel: each launch is handed to the interpreter, with the PTX that nvcc put beside the
// launcher. Only what launchers need is here; what else they call is missing when the library is linked, and said.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "given_stream.h"
#include "launcher.h"

#define DEPLOYOPS_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using deployops::emulation::stream_of_calls;
using deployops::emulation::wrong_stream;

struct FatBinary {  // fatBinaryCtl.h of the toolkit: __fatBinC_Wrapper_t
  int magic, version;
  const void* data;
  void* more;
};

struct Kernel {
  const void* module;  // the fat binary
  const char* name;    // in the PTX
};

// Constructors of other files register kernels before variables of this one would be ready.
std::map<const void*, Kernel>& kernels() {
  static std::map<const void*, Kernel> all;
  return all;
}

struct LaunchRequest {
  const void* module;
  const char* kernel;
  unsigned grid[3], block[3];
  size_t dynamic_shared;
  void** arguments;
};
using Interpreter = int (*)(const LaunchRequest*);
// What is asked of the device's memory: 0 set (`from` is the value), 1 copy, 2 allocate, 3 allocate the workspace. An address, or 0: no.
using Memory = size_t (*)(int what, size_t to, size_t from, size_t bytes);

Interpreter interpreter = nullptr;
Memory memory = nullptr;
cudaError_t last_error = cudaSuccess;
dim3 pushed_grid, pushed_block;
size_t pushed_shared = 0;
cudaStream_t pushed_stream = nullptr;
std::string stream_fault;

cudaError_t expect_stream(cudaStream_t stream, const std::string& what) {
  const std::string wrong = wrong_stream(stream_of_calls(), stream, what);
  if (wrong.empty()) return cudaSuccess;
  if (stream_fault.empty()) stream_fault = wrong;
  return last_error = cudaErrorInvalidResourceHandle;
}

cudaError_t hand_over(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                      cudaStream_t stream) {
  const auto found = kernels().find(function);
  if (found == kernels().end() || interpreter == nullptr) return last_error = cudaErrorInvalidDeviceFunction;
  const cudaError_t wrong = expect_stream(stream, "the kernel `" + std::string(found->second.name) + "` is launched");
  if (wrong != cudaSuccess) return wrong;
  const LaunchRequest request{found->second.module, found->second.name, {grid.x, grid.y, grid.z},
                              {block.x, block.y, block.z}, shared, arguments};
  const cudaError_t error = static_cast<cudaError_t>(interpreter(&request));
  if (error != cudaSuccess) last_error = error;
  return error;
}

size_t ask(int what, void* to, size_t from, size_t bytes) {
  const size_t answer = memory == nullptr ? 0 : memory(what, reinterpret_cast<size_t>(to), from, bytes);
  if (answer == 0) last_error = cudaErrorIllegalAddress;
  return answer;
}

}  // namespace

DEPLOYOPS_EXPORT void deployops_ptx_interpreter(Interpreter launches, Memory accesses) {
  interpreter = launches;
  memory = accesses;
}

// 0: done. 1: the launcher refuses. 2: it returns an error, or a launch failed.
DEPLOYOPS_EXPORT int deployops_ptx_run(const deployops::trt::Launcher* launcher, size_t row, int tactic,
                                       deployops::OperatorCall* call, char* text, size_t size) {
  static const deployops::Parallel sequential;
  call->parallel = &sequential;
  text[0] = 0;
  last_error = cudaSuccess;
  stream_fault.clear();
  try {
    const size_t bytes = launcher->workspace == nullptr ? 0 : launcher->workspace(*call, row);
    void* const scratch = bytes == 0 ? nullptr : reinterpret_cast<void*>(ask(3, nullptr, 0, bytes));
    const cudaError_t error = launcher->launch(*call, row, stream_of_calls(), tactic, scratch);
    if (error == cudaSuccess && last_error == cudaSuccess && stream_fault.empty()) return 0;
    if (!stream_fault.empty()) {
      std::snprintf(text, size, "%s", stream_fault.c_str());
    } else if (error == cudaSuccess) {
      std::snprintf(text, size, "a launch fails, and the launcher reports success");
    } else {
      std::snprintf(text, size, "the launcher returns error %d of CUDA", int(error));
    }
    return 2;
  } catch (const std::exception& e) {
    std::snprintf(text, size, "%s", e.what());
    return 1;
  }
}

// --- what the code that nvcc makes for the host calls --------------------------------------------------------------

extern "C" {

void** __cudaRegisterFatBinary(void* binary) {
  return static_cast<void**>(const_cast<void*>(static_cast<const FatBinary*>(binary)->data));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** module, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  kernels()[host] = {module, name};
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
char __cudaInitModule(void**) { return 0; }

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
  return hand_over(kernel, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
  return hand_over(function, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return hand_over(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                   config->stream);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  pushed_grid = grid;
  pushed_block = block;
  pushed_shared = shared;
  pushed_stream = stream;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = pushed_grid;
  *block = pushed_block;
  *shared = pushed_shared;
  *static_cast<cudaStream_t*>(stream) = pushed_stream;
  return cudaSuccess;
}

// --- what launchers call -------------------------------------------------------------------------------------------

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "an error of CUDA"; }
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const cudaError_t wrong = expect_stream(stream, "the launcher calls cudaMemsetAsync");
  if (wrong != cudaSuccess) return wrong;
  return ask(0, to, size_t(value & 0xff), bytes) != 0 ? cudaSuccess : last_error;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  const cudaError_t wrong = expect_stream(stream, "the launcher calls cudaMemcpyAsync");
  if (wrong != cudaSuccess) return wrong;
  return ask(1, to, reinterpret_cast<size_t>(from), bytes) != 0 ? cudaSuccess : last_error;
}
cudaError_t cudaMallocAsync(void** made, size_t bytes, cudaStream_t stream) {
  const cudaError_t wrong = expect_stream(stream, "the launcher calls cudaMallocAsync");
  if (wrong != cudaSuccess) return wrong;
  const size_t address = ask(2, nullptr, 0, bytes);
  *made = reinterpret_cast<void*>(address);
  return address != 0 ? cudaSuccess : last_error;
}
// The memory goes with the tensors, when the call is over.
cudaError_t cudaFreeAsync(void*, cudaStream_t stream) {
  return expect_stream(stream, "the launcher calls cudaFreeAsync");
}
// As the emulated device answers, but for its compute capability: 8.0.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 8; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 163 << 10; break;
    default: return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}
}
