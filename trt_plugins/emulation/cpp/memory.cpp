#include "memory.h"

#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "block.h"

namespace deployops::emulation {
namespace {

struct Region {
  char *mapping, *mapping_end, *begin, *end;
  char *open, *open_end;  // the pages between the guards
  void* allocated;        // under AddressSanitizer
  bool writable;
  char name[64];
};
std::vector<Region> regions;
unsigned char fill_byte = 0xff;
// Beside memory that may be written. No fill, so that a copy of what lies beside an input shows; as a float32, -4e37.
constexpr unsigned char beside = 0xfd;

void protect_all(int of_inputs, int of_outputs) {
  for (const Region& r : regions) {
    if (r.open < r.open_end) mprotect(r.open, size_t(r.open_end - r.open), r.writable ? of_outputs : of_inputs);
  }
}

}  // namespace

size_t page_size() {
  static const size_t size = size_t(sysconf(_SC_PAGESIZE));
  return size;
}

void set_fill(unsigned char byte) { fill_byte = byte; }
unsigned char fill() { return fill_byte; }

void* guarded_memory(size_t bytes, size_t alignment, bool at_end, bool writable, const char* name, size_t offset,
                     [[maybe_unused]] size_t sparse) {
#if defined(DEPLOYOPS_EMULATION_ADDRESS)
  // AddressSanitizer's own memory: its messages say more.
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max<size_t>(alignment, 16), offset + bytes) != 0) throw std::bad_alloc();
  static_cast<void>(at_end);
  Region r{};
  r.allocated = memory;
  r.begin = static_cast<char*>(memory) + offset;
  r.end = r.begin + bytes;
  if (bytes > 0) std::memset(r.begin, fill_byte, bytes);
  r.writable = writable;
  std::snprintf(r.name, sizeof r.name, "%s", name);
  regions.push_back(r);
  return r.begin;
#else
  const size_t page = page_size(), inner = (offset + bytes + page - 1) / page * page;
  const size_t guard = sparse == 0 ? page : inner, whole = inner + 2 * guard;
  void* mapped = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  Region r{};
  r.mapping = static_cast<char*>(mapped);
  r.mapping_end = r.mapping + whole;
  r.open = r.mapping + guard;
  r.open_end = r.open + inner;
  r.begin = r.open + offset + (at_end ? (inner - bytes - offset) / alignment * alignment : 0);
  r.end = r.begin + bytes;
  r.writable = writable;
  std::snprintf(r.name, sizeof r.name, "%s", name);
  if (inner > 0) {
    mprotect(r.open, inner, PROT_READ | PROT_WRITE);
    const auto set = [](char* from, char* to, unsigned char byte) { std::memset(from, byte, size_t(to - from)); };
    set(r.open, r.begin, writable ? beside : fill_byte);
    set(r.begin + sparse, r.end, fill_byte);
    set(r.end, r.open_end, writable ? beside : fill_byte);
  }
  regions.push_back(r);
  return r.begin;
#endif
}

void release_guarded_memory() {
  for (const Region& r : regions) {
#if defined(DEPLOYOPS_EMULATION_ADDRESS)
    std::free(r.allocated);
#else
    munmap(r.mapping, size_t(r.mapping_end - r.mapping));
#endif
  }
  regions.clear();
}

void open_memory() { protect_all(PROT_READ, PROT_READ | PROT_WRITE); }
void close_memory() { protect_all(PROT_NONE, PROT_NONE); }
void read_memory() { protect_all(PROT_READ, PROT_READ); }

bool written_beside([[maybe_unused]] char* text, [[maybe_unused]] size_t size) {
  // AddressSanitizer sees such a write itself.
#if !defined(DEPLOYOPS_EMULATION_ADDRESS)
  const auto changed = [](const char* begin, const char* end) {
    return std::find_if(begin, end, [](char c) { return static_cast<unsigned char>(c) != beside; });
  };
  for (const Region& r : regions) {
    if (!r.writable) continue;
    const char* found = changed(r.end, r.open_end);
    if (found == r.open_end) found = changed(r.open, r.begin);
    if (found == r.begin) continue;
    const size_t length = size_t(std::snprintf(text, size, "writes "));
    if (length < size) describe_address(found, text + length, size - length);
    return true;
  }
#endif
  return false;
}

void describe_address(const void* address, char* text, size_t size) {
  text[0] = 0;
  const char* p = static_cast<const char*>(address);
  for (const Region& r : regions) {
    if (r.mapping == nullptr || p < r.mapping || p >= r.mapping_end) continue;
    if (p >= r.end) {
      std::snprintf(text, size, "%td bytes beyond the end of %s, which has %td", p - r.end, r.name, r.end - r.begin);
    } else if (p < r.begin) {
      std::snprintf(text, size, "%td bytes before the beginning of %s", r.begin - p, r.name);
    } else {
      std::snprintf(text, size, "byte %td of %s", p - r.begin, r.name);
    }
    return;
  }
}

// --- faults ------------------------------------------------------------------------------------------------------

namespace {

size_t library_base() {
  static size_t base = 0;
  if (base == 0) {
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* found) {
          const uintptr_t here = reinterpret_cast<uintptr_t>(&library_base);
          for (int k = 0; k < info->dlpi_phnum; ++k) {
            const auto& header = info->dlpi_phdr[k];
            const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
            if (header.p_type == PT_LOAD && here >= begin && here < begin + header.p_memsz) {
              *static_cast<size_t*>(found) = info->dlpi_addr;
              return 1;
            }
          }
          return 0;
        },
        &base);
  }
  return base;
}

const void* program_counter(void* context) {
  auto* c = static_cast<ucontext_t*>(context);
#if defined(__x86_64__)
  return reinterpret_cast<void*>(c->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(c->uc_mcontext.pc);
#else
  return nullptr;
#endif
}

bool is_write([[maybe_unused]] void* context, [[maybe_unused]] bool& known) {
#if defined(__x86_64__)
  known = true;  // bit 1 of the page fault's error code: Intel SDM volume 3, 4.7
  return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
  known = false;
  return false;
#endif
}

void on_fault(int number, siginfo_t* info, void* context) {
  char where[160], who[160], text[640];
  bool known = false;
  const bool write = number == SIGSEGV && is_write(context, known);
  const void* address = info->si_addr;
  describe_address(address, where, sizeof where);
  if (where[0] == 0 && !describe_block_memory(address, where, sizeof where)) {
    std::snprintf(where, sizeof where, "address %p, which is nobody's", address);
  }
  describe_current_thread(who, sizeof who);
  const char* what = !known ? "accesses" : write ? "writes" : "reads";
  if (number != SIGSEGV && number != SIGBUS) {
    what = number == SIGFPE ? "divides an integer by 0, or beyond its range," : "gave up";
    where[0] = 0;
  }
  const int length = std::snprintf(text, sizeof text, "\ndeployops fault: %s %s %s <pc 0x%zx>\n",
                                   current_thread ? who : "the launcher, which runs on the processor,", what, where,
                                   offset_in_library(program_counter(context)));
  _exit(::write(2, text, size_t(std::max(0, length))) < 0 ? 87 : 86);
}

}  // namespace

size_t offset_in_library(const void* pc) { return reinterpret_cast<uintptr_t>(pc) - library_base(); }

thread_local bool prepared_for_faults = false;

void prepare_thread_for_faults() {
  if (prepared_for_faults) return;
  prepared_for_faults = true;
  stack_t stack{};
  stack.ss_size = 64 << 10;
  stack.ss_sp = std::malloc(stack.ss_size);  // for as long as the thread lives; a few threads, freed with the process
  sigaltstack(&stack, nullptr);
}

void catch_faults() {
#if !defined(DEPLOYOPS_EMULATION_ADDRESS)
  library_base();
  page_size();
  prepare_thread_for_faults();
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigaction(number, &action, nullptr);
#endif
}

// --- shared memory -----------------------------------------------------------------------------------------------

Span static_shared_memory() {
#if defined(DEPLOYOPS_EMULATION_PLAIN_STATIC)
  return {};
#else
  // The variables of this library that each thread of the operating system has of its own.
  struct Search {
    uintptr_t here;
    Span found;
  } search{reinterpret_cast<uintptr_t>(&library_base), {}};
  static_cast<void>(current_thread);  // after the first use of one, they exist
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* argument) {
        auto& s = *static_cast<Search*>(argument);
        bool ours = false;
        size_t size = 0;
        for (int k = 0; k < info->dlpi_phnum; ++k) {
          const auto& header = info->dlpi_phdr[k];
          const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
          ours |= header.p_type == PT_LOAD && s.here >= begin && s.here < begin + header.p_memsz;
          if (header.p_type == PT_TLS) size = header.p_memsz;
        }
        if (!ours) return 0;
        char* data = static_cast<char*>(info->dlpi_tls_data);
        if (data != nullptr) s.found = {data, data + size};
        return 1;
      },
      &search);
  return search.found;
#endif
}

}  // namespace deployops::emulation
