// What the compiler calls where UndefinedBehaviorSanitizer finds something: an access that no address of that alignment
// has, an index beyond an array, a division by 0, a shift that is none. Answered here, so that it costs no library, and
// so that the message names the CUDA thread. The layouts are those of compiler-rt's ubsan_handlers.h.
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "block.h"

#if !defined(DEPLOYOPS_EMULATION_ADDRESS)

namespace deployops::emulation {
namespace {

struct SourceLocation {
  const char* file;
  uint32_t line, column;
};
struct TypeDescriptor {
  uint16_t kind, info;
  char name[1];
};
struct MisalignedData {
  SourceLocation at;
  const TypeDescriptor* type;
  unsigned char log_alignment, kind;
};
struct IndexData {
  SourceLocation at;
  const TypeDescriptor *array, *index;
};
struct OperationData {
  SourceLocation at;
};

[[noreturn]] void found(const SourceLocation& at, const char* text) {
  if (current_thread != nullptr) {
    const uint3& t = current_thread->thread_index;
    current_runner->fail("thread (%u, %u, %u) %s, at %s:%u", t.x, t.y, t.z, text, at.file, at.line);
  }
  dprintf(2, "\ndeployops fault: the launcher, which runs on the processor, %s, at %s:%u\n", text, at.file, at.line);
  _exit(86);
}

}  // namespace
}  // namespace deployops::emulation

using namespace deployops::emulation;

extern "C" {

void __ubsan_handle_type_mismatch_v1_abort(const MisalignedData* data, uintptr_t address) {
  char text[256];
  std::snprintf(text, sizeof text, "accesses %s at an address that is %zu bytes past a multiple of %zu, its alignment",
                data->type->name, size_t(address % (size_t(1) << data->log_alignment)), size_t(1) << data->log_alignment);
  found(data->at, text);
}
void __ubsan_handle_out_of_bounds_abort(const IndexData* data, uintptr_t index) {
  char text[256];
  std::snprintf(text, sizeof text, "takes index %td of an array of type %s", ptrdiff_t(index), data->array->name);
  found(data->at, text);
}
void __ubsan_handle_divrem_overflow_abort(const OperationData* data, uintptr_t, uintptr_t) {
  found(data->at, "divides an integer by 0, or beyond its range");
}
void __ubsan_handle_shift_out_of_bounds_abort(const OperationData* data, uintptr_t, uintptr_t) {
  found(data->at, "shifts by a negative number, or by more digits than there are");
}
}

#endif
