// Stacks of threads, and what AddressSanitizer has to be told when they are switched.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

#include "memory.h"
#if defined(DEPLOYOPS_EMULATION_ADDRESS)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace deployops::emulation::stack_switch {

// With a page below that nobody may touch.
inline char* new_stack(size_t size) {
  const size_t guard = page_size();
  void* mapped = mmap(nullptr, size + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  mprotect(mapped, guard, PROT_NONE);
  return static_cast<char*>(mapped) + guard;
}
inline void free_stack(char* stack, size_t size) {
#if defined(DEPLOYOPS_EMULATION_ADDRESS)
  __asan_unpoison_memory_region(stack, size);  // another mapping may come to lie there
#endif
  munmap(stack - page_size(), size + page_size());
}

#if defined(DEPLOYOPS_EMULATION_ADDRESS)

struct MainStack {
  const void** bottom;
  size_t* size;
};
inline thread_local MainStack main_stack{};

inline void enter(const void*& bottom, size_t& size) { main_stack = {&bottom, &size}; }
inline void leaves(void*& left, const void* bottom, size_t size) {
  __sanitizer_start_switch_fiber(&left, bottom, size);
}
inline void returned(void* left) { __sanitizer_finish_switch_fiber(left, nullptr, nullptr); }
inline void started() {
  const void* bottom;
  size_t size;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  // The first stack that is left is the main one.
  if (*main_stack.bottom == nullptr) {
    *main_stack.bottom = bottom;
    *main_stack.size = size;
  }
}

#else

inline void enter(const void*&, size_t&) {}
inline void leaves(void*&, const void*, size_t) {}
inline void returned(void*) {}
inline void started() {}

#endif

}  // namespace deployops::emulation::stack_switch
