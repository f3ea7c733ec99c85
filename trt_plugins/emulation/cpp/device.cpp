// The runtime interface, and launches: blocks are spread over threads of the operating system.
#include "device.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "block.h"
#include "memory.h"
#include "races.h"

namespace deployops::emulation {
namespace {

std::mutex device_mutex;
std::string failure_text;
bool failure_of_device = true;
cudaError_t last_error = cudaSuccess;
RunSettings settings;
std::unordered_map<const void*, size_t> allowed_dynamic_shared;
std::vector<std::unique_ptr<BlockRunner>> idle_runners;

constexpr size_t default_shared = 48 << 10;
constexpr size_t most_shared = 99 << 10;  // of compute capability 8.6, 8.9 and 12.0; others have more
constexpr size_t threads_worth_sharing = 4096;

cudaError_t refuse(cudaError_t error, const char* text, bool by_device = true) {
  const std::lock_guard<std::mutex> lock(device_mutex);
  if (failure_text.empty()) {
    failure_text = text;
    failure_of_device = by_device;
  }
  return last_error = error;
}

// A device does as it is told, and the results are wrong now and then. Here it is an error, so that no host can miss it.
cudaError_t expect_stream(cudaStream_t stream, const char* what) {
  const bool by_default = stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  if (settings.stream == nullptr ? !by_default : stream == settings.stream) return cudaSuccess;
  char text[512];
  std::snprintf(text, sizeof text,
                "%s on %s, not on the stream given: in TensorRT it would race with what runs before and after", what,
                by_default ? "the default stream" : "another stream");
  return refuse(cudaErrorInvalidResourceHandle, text, false);
}

// After what `who` did; while memory is open.
cudaError_t expect_nothing_beside(const char* who) {
  char what[256], text[512];
  if (!written_beside(what, sizeof what)) return cudaSuccess;
  std::snprintf(text, sizeof text, "%s %s", who, what);
  return refuse(cudaErrorIllegalAddress, text, false);
}

// CUDA C++ Programming Guide, "Compute Capabilities".
cudaError_t check_configuration(const cudaLaunchConfig_t& c, const void* kernel) {
  char text[256];
  const dim3 &g = c.gridDim, &b = c.blockDim;
  const uint64_t threads = uint64_t(b.x) * b.y * b.z;
  if (g.x < 1 || g.y < 1 || g.z < 1 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) {
    std::snprintf(text, sizeof text,
                  "a launch with a grid of (%u, %u, %u) blocks; expected 1 … 2147483647, 1 … 65535, 1 … 65535", g.x,
                  g.y, g.z);
    return refuse(cudaErrorInvalidConfiguration, text);
  }
  if (threads < 1 || threads > 1024 || b.z > 64) {
    std::snprintf(text, sizeof text, "a launch with blocks of (%u, %u, %u) threads; expected 1 … 1024 in all, z at most 64",
                  b.x, b.y, b.z);
    return refuse(cudaErrorInvalidConfiguration, text);
  }
  const auto found = allowed_dynamic_shared.find(kernel);
  const size_t allowed = found == allowed_dynamic_shared.end() ? default_shared : found->second;
  if (c.dynamicSmemBytes > allowed) {
    std::snprintf(text, sizeof text, "a launch with %zu bytes of dynamic shared memory; %zu are allowed%s",
                  c.dynamicSmemBytes, allowed, allowed < most_shared ? " (cudaFuncSetAttribute allows more)" : "");
    return refuse(cudaErrorInvalidValue, text);
  }
  return cudaSuccess;
}

std::unique_ptr<BlockRunner> take_runner() {
  const std::lock_guard<std::mutex> lock(device_mutex);
  if (idle_runners.empty()) return std::make_unique<BlockRunner>();
  auto runner = std::move(idle_runners.back());
  idle_runners.pop_back();
  return runner;
}

unsigned workers_for([[maybe_unused]] uint64_t blocks, [[maybe_unused]] uint64_t threads) {
#if defined(DEPLOYOPS_EMULATION_ADDRESS) || defined(DEPLOYOPS_EMULATION_RACES)
  return 1;
#else
  if (blocks * threads < threads_worth_sharing) return 1;
  const unsigned wanted = settings.workers > 0 ? unsigned(settings.workers) : std::thread::hardware_concurrency();
  return unsigned(std::min<uint64_t>(std::max(1u, wanted), blocks));
#endif
}

}  // namespace

void set_run_settings(const RunSettings& wanted) {
  settings = wanted;
  failure_text.clear();
  failure_of_device = true;
  last_error = cudaSuccess;
}
const std::string& failure() { return failure_text; }
bool device_would_tell() { return failure_of_device; }

cudaError_t allow_dynamic_shared(const void* kernel, size_t bytes) {
  if (bytes > most_shared) {
    return refuse(cudaErrorInvalidValue, "more than 101376 bytes of dynamic shared memory, which some devices lack");
  }
  const std::lock_guard<std::mutex> lock(device_mutex);
  allowed_dynamic_shared[kernel] = std::max(default_shared, bytes);
  return cudaSuccess;
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, void (*body)(void* call), void* call) {
  if (current_thread != nullptr) {
    return refuse(cudaErrorNotSupported, "a kernel launches a kernel, which the emulation does not do");
  }
  char name[64], launched[96];  // the name is in the debug information, where the parent process finds it
  std::snprintf(name, sizeof name, "the kernel <kernel 0x%zx>", offset_in_library(kernel));
  std::snprintf(launched, sizeof launched, "%s is launched", name);
  cudaError_t wrong = check_configuration(config, kernel);
  if (wrong == cudaSuccess) wrong = expect_stream(config.stream, launched);
  if (wrong != cudaSuccess) return wrong;
  const dim3 grid = config.gridDim;
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  const uint64_t threads = uint64_t(config.blockDim.x) * config.blockDim.y * config.blockDim.z;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  races::launch_starts();
  open_memory();
  const auto work = [&] {
    prepare_thread_for_faults();
    std::unique_ptr<BlockRunner> runner = take_runner();
    for (uint64_t i; !failed && (i = next.fetch_add(1)) < blocks;) {
      // Blocks in another order too, and each with a schedule of its own.
      const uint64_t b = settings.seed % 2 == 0 ? i : blocks - 1 - i;
      const unsigned seed = settings.seed == 0 ? 0 : settings.seed * 7919u + unsigned(b) + 1;
      if (settings.seed != 0 || runner->unprepared()) {
        runner->prepare({grid, config.blockDim, config.dynamicSmemBytes, body, call, {seed}});
      }
      const uint3 index{unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / (uint64_t(grid.x) * grid.y))};
      if (!runner->run(index)) {
        failed = true;
        refuse(cudaErrorLaunchFailure, runner->failure());
      }
    }
    runner->forget();
    const std::lock_guard<std::mutex> lock(device_mutex);
    idle_runners.push_back(std::move(runner));
  };
  std::vector<std::thread> workers;
  for (unsigned k = workers_for(blocks, threads); k > 1; --k) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  const cudaError_t error = failed ? cudaErrorLaunchFailure : expect_nothing_beside(name);
  close_memory();
  return error;
}

}  // namespace deployops::emulation

extern "C" __attribute__((visibility("default"))) void deployops_emulated_stream(void* stream) {
  deployops::emulation::settings.stream = static_cast<cudaStream_t>(stream);
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    default: return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaPeekAtLastError() { return deployops::emulation::last_error; }
cudaError_t cudaGetLastError() { return std::exchange(deployops::emulation::last_error, cudaSuccess); }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMultiProcessorCount: *value = 4; break;  // few, so that loops over a grid are gone round
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 1536; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 8; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 6; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 99 << 10; break;
    default: return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  using namespace deployops::emulation;
  cudaError_t error = expect_stream(stream, "the launcher calls cudaMemcpyAsync");
  if (error != cudaSuccess) return error;
  open_memory();
  if (bytes > 0) std::memmove(to, from, bytes);
  error = expect_nothing_beside("the launcher's cudaMemcpyAsync");
  close_memory();
  return error;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  using namespace deployops::emulation;
  cudaError_t error = expect_stream(stream, "the launcher calls cudaMemsetAsync");
  if (error != cudaSuccess) return error;
  open_memory();
  if (bytes > 0) std::memset(to, value, bytes);
  error = expect_nothing_beside("the launcher's cudaMemsetAsync");
  close_memory();
  return error;
}
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  using namespace deployops::emulation;
  const cudaError_t error = expect_stream(stream, "the launcher calls cudaMallocAsync");
  if (error == cudaSuccess) *memory = guarded_memory(bytes, 256, false, true, "memory from cudaMallocAsync");
  return error;
}
// The memory goes with the tensors, when the call is over.
cudaError_t cudaFreeAsync(void*, cudaStream_t stream) {
  return deployops::emulation::expect_stream(stream, "the launcher calls cudaFreeAsync");
}
