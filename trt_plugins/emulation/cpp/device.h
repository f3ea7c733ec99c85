// How a call is run, and what went wrong in it.
#pragma once

#include <cstdint>
#include <string>

#include "include/cuda_runtime.h"

namespace deployops::emulation {

struct RunSettings {
  uint32_t seed = 0;    // of the schedule; 0: threads in their order
  int32_t workers = 0;  // threads of the operating system; 0: one per core
};

void set_run_settings(const RunSettings&);  // before each call

// Why the last launch failed; empty where it did not.
const std::string& failure();

}  // namespace deployops::emulation
