// How a call is run, and what went wrong in it.
#pragma once

#include <cstdint>
#include <string>

#include "include/cuda_runtime.h"

namespace deployops::emulation {

struct RunSettings {
  uint32_t seed = 0;    // of the schedule; 0: threads in their order
  int32_t workers = 0;  // threads of the operating system; 0: one per core
  // On which launches are to be; null where it was not said: then any but the default one. A host that loads the library
  // says it with `deployops_emulated_stream(stream)`, of C.
  cudaStream_t stream = nullptr;
};

void set_run_settings(const RunSettings&);  // before each call

// Calls on tensors so large that only some blocks can be run: the first ones and the last.
struct LargeRun {
  uint64_t elements = 0;  // of the largest tensor; 0: all blocks are run
  uint64_t at_end = 0;    // how many of them, at the tensors' end, are to be computed
};
void set_large_run(const LargeRun&);                // for all calls that follow
void expect_small(size_t bytes, const char* what);  // throws where all of it would be written, and that is much
uint64_t blocks_launched();                         // by the last call, those that were not run too

// Why the first launch, or copy, that failed did; empty where none failed.
const std::string& failure();
// Whether a device would have returned an error too.
bool device_would_tell();

}  // namespace deployops::emulation
