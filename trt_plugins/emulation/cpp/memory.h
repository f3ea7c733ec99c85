// Device memory that notices when it is used wrongly: each allocation ends (or begins) at a page that nobody may touch,
// inputs can only be read, and the processor's own code (the launcher) may touch none of it.
#pragma once

#include <cstddef>

#include "include/emulation/keywords.h"

namespace deployops::emulation {

size_t page_size();

// What memory holds that nobody has written yet: tensors, the workspace, shared memory. 0xff, which is NaN, where nothing
// else is said.
void set_fill(unsigned char byte);
unsigned char fill();

// `name` is for messages. The memory ends at the guard where `at_end`, as far as `alignment` allows; else it begins
// right after one. It begins `offset` bytes past a multiple of `alignment`. The first `sparse` bytes are 0, and cost nothing
// as long as nobody writes there; the guards are as large as the memory then, for indices that overflow.
void* guarded_memory(size_t bytes, size_t alignment, bool at_end, bool writable, const char* name, size_t offset = 0,
                     size_t sparse = 0);
void release_guarded_memory();

// Whether somebody wrote beside memory that may be written: between it and its guard, where writing is no fault at once.
// `text`: "writes 4 bytes beyond the end of `y`, which has 404". While memory is open or read.
bool written_beside(char* text, size_t size);

// The device may use the memory while a kernel runs, the launcher never.
void open_memory();
void close_memory();
void read_memory();  // for the program that looks at the results

// What lies at an address: "12 bytes beyond the end of `x`"; empty where it is none of this memory.
void describe_address(const void* address, char* text, size_t size);

// Says what happened and ends the process where code touches memory that it may not.
void catch_faults();
void prepare_thread_for_faults();  // each thread of the operating system
extern thread_local bool prepared_for_faults;

// Places in this library as the parent process finds them: `<pc 0x1234>`.
size_t offset_in_library(const void* pc);

struct Span {
  char *begin = nullptr, *end = nullptr;
  bool holds(const void* p) const { return begin <= p && p < end; }
};

// The static shared memory of the block on this thread of the operating system. The emulation has to be a library or a
// program with a C library of its own: in a static program the C library's variables would be among these.
Span static_shared_memory();

}  // namespace deployops::emulation
