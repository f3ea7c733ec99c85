// The runtime interface, and launches: blocks are spread over threads of the operating system.
#include "device.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "block.h"
#include "given_stream.h"
#include "memory.h"
#include "races.h"

namespace deployops::emulation {
namespace {

std::mutex device_mutex;
std::string failure_text;
bool failure_of_device = true;
cudaError_t last_error = cudaSuccess;
RunSettings settings;
LargeRun large;
uint64_t launched_blocks = 0;
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

cudaError_t expect_stream(cudaStream_t stream, const char* what) {
  const std::string wrong = wrong_stream(settings.stream, stream, what);
  return wrong.empty() ? cudaSuccess : refuse(cudaErrorInvalidResourceHandle, wrong.c_str(), false);
}

// After what `who` did; while memory is open.
cudaError_t expect_nothing_beside(const char* who) {
  char what[256], text[512];
  if (!written_beside(what, sizeof what)) return cudaSuccess;
  std::snprintf(text, sizeof text, "%s %s", who, what);
  return refuse(cudaErrorIllegalAddress, text, false);
}

// Where the instructions before each kernel with __launch_bounds__ begin; the linker gives the list its ends.
extern "C" __attribute__((weak, visibility("hidden"))) const void* const __start___patchable_function_entries[];
extern "C" __attribute__((weak, visibility("hidden"))) const void* const __stop___patchable_function_entries[];

// The most threads of a block that a kernel promises; 0 where it promises nothing.
unsigned launch_bound(const void* kernel) {
#if defined(__aarch64__)
  using Instruction = uint32_t;
  constexpr Instruction nothing = 0xd503201f;
#else
  using Instruction = uint8_t;
  constexpr Instruction nothing = 0x90;  // of x86-64
#endif
  const auto* const entry = static_cast<const Instruction*>(kernel);
  constexpr size_t most = 1024;
  for (auto* at = __start___patchable_function_entries; at != __stop___patchable_function_entries; ++at) {
    const auto* const begin = static_cast<const Instruction*>(*at);
    if (begin >= entry || size_t(entry - begin) > most) continue;
    // Its own, not those of a short kernel before it.
    if (std::all_of(begin, entry, [](Instruction i) { return i == nothing; })) return unsigned(entry - begin);
  }
  return 0;
}

// CUDA C++ Programming Guide, "Compute Capabilities", and "Launch Bounds".
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
  const unsigned bound = launch_bound(kernel);
  if (bound != 0 && threads > bound) {
    std::snprintf(text, sizeof text,
                  "a launch with blocks of %u threads of the kernel <kernel 0x%zx>, which promises at most %u (__launch_bounds__)",
                  unsigned(threads), offset_in_library(kernel), bound);
    return refuse(cudaErrorInvalidValue, text);
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

// The numbers along an axis of the grid of the blocks that are run.
std::vector<uint64_t> chosen_along(uint64_t extent) {
  constexpr uint64_t first = 4, least = 64;
  const uint64_t last = large.elements == 0 ? extent : least + extent * large.at_end / large.elements;
  std::vector<uint64_t> chosen;
  for (uint64_t i = 0; i < extent; ++i) {
    if (i == first && extent > first + last) i = extent - last;
    chosen.push_back(i);
  }
  return chosen;
}

std::vector<uint3> chosen_blocks(dim3 grid) {
  const auto x = chosen_along(grid.x), y = chosen_along(grid.y), z = chosen_along(grid.z);
  std::vector<uint3> chosen;
  for (uint64_t k : z) {
    for (uint64_t j : y) {
      for (uint64_t i : x) chosen.push_back({unsigned(i), unsigned(j), unsigned(k)});
    }
  }
  return chosen;
}

// Blocks that go round: they would touch all of the memory, and who computes its end is not known.
void expect_one_round(dim3 grid, uint64_t blocks, uint64_t threads) {
  constexpr uint64_t most_of_a_thread = 4096;
  const bool at_limit = grid.x == 0x7fffffff || grid.y == 65535 || grid.z == 65535;
  if (large.elements == 0 || (!at_limit && blocks * threads * most_of_a_thread >= large.elements)) return;
  throw std::runtime_error("it launches blocks that go round the tensors");
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
  launched_blocks = 0;
}
void set_large_run(const LargeRun& wanted) { large = wanted; }
uint64_t blocks_launched() { return launched_blocks; }
void expect_small(size_t bytes, const char* what) {
  constexpr size_t most = 256 << 20;
  if (large.elements == 0 || bytes <= most) return;
  throw std::runtime_error("it asks for " + std::to_string(bytes) + " bytes of " + what + ", more than this run writes");
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
  launched_blocks += blocks;
  expect_one_round(grid, blocks, threads);
  const std::vector<uint3> some = large.elements == 0 ? std::vector<uint3>{} : chosen_blocks(grid);
  const uint64_t run = large.elements == 0 ? blocks : some.size();
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};
  races::launch_starts();
  open_memory();
  const auto work = [&] {
    prepare_thread_for_faults();
    std::unique_ptr<BlockRunner> runner = take_runner();
    for (uint64_t i; !failed && (i = next.fetch_add(1)) < run;) {
      // Blocks in another order too, and each with a schedule of its own.
      const uint64_t b = settings.seed % 2 == 0 ? i : run - 1 - i;
      const unsigned seed = settings.seed == 0 ? 0 : settings.seed * 7919u + unsigned(b) + 1;
      if (settings.seed != 0 || runner->unprepared()) {
        runner->prepare({grid, config.blockDim, config.dynamicSmemBytes, body, call, {seed}});
      }
      const uint3 index{unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / (uint64_t(grid.x) * grid.y))};
      if (!runner->run(some.empty() ? index : some[b])) {
        failed = true;
        refuse(cudaErrorLaunchFailure, runner->failure());
      }
    }
    runner->forget();
    const std::lock_guard<std::mutex> lock(device_mutex);
    idle_runners.push_back(std::move(runner));
  };
  std::vector<std::thread> workers;
  for (unsigned k = workers_for(run, threads); k > 1; --k) workers.emplace_back(work);
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
  expect_small(bytes, "cudaMemcpyAsync");
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
  expect_small(bytes, "cudaMemsetAsync");
  open_memory();
  if (bytes > 0) std::memset(to, value, bytes);
  error = expect_nothing_beside("the launcher's cudaMemsetAsync");
  close_memory();
  return error;
}
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  using namespace deployops::emulation;
  const cudaError_t error = expect_stream(stream, "the launcher calls cudaMallocAsync");
  expect_small(bytes, "cudaMallocAsync");
  if (error == cudaSuccess) *memory = guarded_memory(bytes, 256, false, true, "memory from cudaMallocAsync");
  return error;
}
// The memory goes with the tensors, when the call is over.
cudaError_t cudaFreeAsync(void*, cudaStream_t stream) {
  return deployops::emulation::expect_stream(stream, "the launcher calls cudaFreeAsync");
}
