// Switching between stacks in a few instructions: what a function call must preserve is kept on the stack left behind.
// Other processors than x86-64 and aarch64 take `ucontext`, which asks the kernel each time.
#pragma once

#include <cstddef>

namespace deployops::emulation {

using Entry = void (*)();

// A stack on which `entry` starts when it is switched to. `entry` never returns.
void* new_context(char* stack, size_t size, Entry entry);

// Leaves the running stack, noted in *left, for another one.
void switch_context(void** left, void* to);

}  // namespace deployops::emulation
