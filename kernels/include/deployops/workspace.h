// Scratch memory that a kernel on the device asks for: how it is aligned, and what adapters reserve so that it can be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "deployops/error.h"

namespace deployops {

constexpr size_t workspace_alignment = 256;

// What to reserve where memory has any alignment. Throws InputError for a number that no memory has.
inline size_t reserved_for(size_t bytes) {
  require(bytes <= size_t(INT64_MAX) - workspace_alignment, "the kernel asks for ", bytes, " bytes of workspace");
  return bytes == 0 ? 0 : bytes + workspace_alignment - 1;
}

inline void* workspace_in(void* reserved) {
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(reserved) + workspace_alignment - 1) &
                                 ~uintptr_t(workspace_alignment - 1));
}

}  // namespace deployops
