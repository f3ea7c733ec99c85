#include "context.h"

#include <cstdint>
#include <cstring>
#if !defined(DEPLOYOPS_EMULATION_UCONTEXT) && (defined(__x86_64__) || defined(__aarch64__))
#define DEPLOYOPS_HAND_WRITTEN
#else
#include <ucontext.h>
#endif

#if defined(DEPLOYOPS_HAND_WRITTEN) && defined(__x86_64__)

// rbx, rbp, r12 … r15: System V x86-64 psABI, figure 3.4.
asm(R"(
.text
.p2align 4
.type deployops_switch_context,@function
.local deployops_switch_context
deployops_switch_context:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size deployops_switch_context, . - deployops_switch_context
)");

#elif defined(DEPLOYOPS_HAND_WRITTEN)

// x19 … x30 and the lower halves of v8 … v15: AAPCS64, 6.1.
asm(R"(
.text
.p2align 4
.type deployops_switch_context,%function
.local deployops_switch_context
deployops_switch_context:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size deployops_switch_context, . - deployops_switch_context
)");

#endif

#if defined(DEPLOYOPS_HAND_WRITTEN)
extern "C" void deployops_switch_context(void** left, void* to);
#endif

namespace deployops::emulation {

#if defined(DEPLOYOPS_HAND_WRITTEN) && defined(__x86_64__)

void* new_context(char* stack, size_t size, Entry entry) {
  // `entry` finds the stack as after a call: the return address, here 0, at 16·k + 8.
  void** top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack) + size) & ~uintptr_t(15));
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int k = 0; k < 6; ++k) *--top = nullptr;
  return top;
}
void switch_context(void** left, void* to) { deployops_switch_context(left, to); }

#elif defined(DEPLOYOPS_HAND_WRITTEN)

void* new_context(char* stack, size_t size, Entry entry) {
  char* top = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(stack) + size) & ~uintptr_t(15)) - 160;
  std::memset(top, 0, 160);
  std::memcpy(top + 88, &entry, sizeof entry);  // x30, to which `ret` goes
  return top;
}
void switch_context(void** left, void* to) { deployops_switch_context(left, to); }

#else

void* new_context(char* stack, size_t size, Entry entry) {
  auto* made = reinterpret_cast<ucontext_t*>(stack);
  const size_t taken = (sizeof(ucontext_t) + 63) / 64 * 64;
  getcontext(made);
  made->uc_stack.ss_sp = stack + taken;
  made->uc_stack.ss_size = size - taken;
  made->uc_link = nullptr;
  makecontext(made, entry, 0);
  return made;
}
void switch_context(void** left, void* to) {
  ucontext_t here;
  *left = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}

#endif

}  // namespace deployops::emulation
