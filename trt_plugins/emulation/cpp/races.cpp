#include "races.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "block.h"
#include "include/emulation/atomics.h"

namespace deployops::emulation {

void saw_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

#if !defined(DEPLOYOPS_EMULATION_RACES)

void saw_atomic(const void*, size_t, const void*) {}

#else

namespace races {
namespace {

constexpr unsigned lanes = 32;

// When something happened: the block's barriers before it, and the thread's own meetings of lanes since the last one.
struct Moment {
  uint32_t block = 0, thread = 0, interval = 0, meetings = 0;
};

// An access to some bytes of a word of memory.
struct Access {
  Moment when;
  uint32_t launch = 0;
  uint8_t bytes = 0;  // of the four, as bits; 0: none
  bool writes = false, atomic = false;
  const void* from = nullptr;
};

// What other threads did before, as learned through atomic operations.
struct Knowledge {
  std::map<uint32_t, uint32_t> intervals;                               // block -> those below are known
  std::map<std::pair<uint32_t, uint32_t>, std::pair<uint32_t, uint32_t>> moments;  // (block, thread) -> latest

  void add(const Knowledge& other) {
    for (const auto& [block, below] : other.intervals) intervals[block] = std::max(intervals[block], below);
    for (const auto& [thread, latest] : other.moments) moments[thread] = std::max(moments[thread], latest);
  }
  bool has(const Moment& m) const {
    const auto block = intervals.find(m.block);
    if (block != intervals.end() && m.interval < block->second) return true;
    const auto latest = moments.find({m.block, m.thread});
    return latest != moments.end() && std::pair(m.interval, m.meetings) <= latest->second;
  }
};

struct ThreadClock {
  uint32_t meetings = 1;                 // of its own
  std::array<uint32_t, lanes> seen{};    // of the lanes of its warp
  Knowledge learned;
};

constexpr size_t words_per_page = 1024, kept_accesses = 4;
using Page = std::array<std::array<Access, kept_accesses>, words_per_page>;

std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
uintptr_t last_page_number = 0;
Page* last_page = nullptr;
std::unordered_map<const void*, Knowledge> through_atomics;
std::vector<ThreadClock> clocks;
uint32_t launch_number = 0, block_number = 0, interval = 0, next_replaced = 0;
BlockRunner* block = nullptr;

std::array<Access, kept_accesses>& word_at(uintptr_t address) {
  const uintptr_t number = address / (4 * words_per_page);
  if (number != last_page_number || last_page == nullptr) {
    auto& page = pages[number];
    if (page == nullptr) page = std::make_unique<Page>();
    last_page = page.get();
    last_page_number = number;
  }
  return (*last_page)[address / 4 % words_per_page];
}

bool happened_before(const Access& a, const Thread& me, const ThreadClock& clock) {
  if (a.launch != launch_number) return true;
  if (a.when.block == block_number) {
    if (a.when.thread == me.number || a.when.interval < interval) return true;
    if (a.when.thread / lanes == me.warp && clock.seen[a.when.thread % lanes] >= a.when.meetings) return true;
  }
  return clock.learned.has(a.when);
}

[[noreturn]] void report(const Access& other, bool writes, const void* address, const void* from) {
  char where[160];
  describe_address(address, where, sizeof where);
  if (where[0] == 0) std::snprintf(where, sizeof where, "%s", block->is_shared(address) ? "shared memory" : "memory");
  const bool same_block = other.when.block == block_number;
  block->fail("race: thread %u %s %s <pc 0x%zx>, and thread %u%s %s it <pc 0x%zx>; nothing orders the two",
              current_thread->number, writes ? "writes" : "reads", where, offset_in_library(from) - 1,
              other.when.thread, same_block ? "" : " of another block", other.writes ? "writes" : "reads",
              offset_in_library(other.from) - 1);
}

void see_word(uintptr_t word, uint8_t bytes, bool writes, bool atomic, const void* from, bool shared) {
  const Thread& me = *current_thread;
  ThreadClock& clock = clocks[me.number];
  const Access now{{block_number, me.number, interval, clock.meetings}, launch_number, bytes, writes, atomic, from};
  auto& kept = word_at(word);
  Access* place = nullptr;
  for (Access& a : kept) {
    if (a.bytes == 0) {
      if (place == nullptr) place = &a;
      continue;
    }
    if (shared && (a.launch != launch_number || a.when.block != block_number)) {
      a.bytes = 0;  // the memory of a block that is gone
      if (place == nullptr) place = &a;
      continue;
    }
    const bool before = happened_before(a, me, clock);
    const bool conflict = (a.bytes & bytes) != 0 && (a.writes || writes) && !(a.atomic && atomic);
    if (conflict && !before) report(a, writes, reinterpret_cast<void*>(word), from);
    // Who is ordered after this access and not after that one, would have to be after both.
    if (before && (a.bytes & ~bytes) == 0 && (writes || !a.writes)) place = &a;
  }
  if (place == nullptr) place = &kept[next_replaced++ % kept_accesses];
  *place = now;
}

void see(const void* address, size_t size, bool writes, bool atomic, const void* from) {
  if (current_thread == nullptr || size == 0) return;
  if (block->stack_of_running().holds(address)) return;
  const bool shared = block->is_shared(address);
  uintptr_t at = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = at + size;
  while (at < end) {
    const uintptr_t word = at & ~uintptr_t(3), next = std::min(end, word + 4);
    const uint8_t bytes = uint8_t(((1u << (next - at)) - 1) << (at - word));
    see_word(word, bytes, writes, atomic, from, shared);
    at = next;
  }
}

}  // namespace

void launch_starts() {
  ++launch_number;  // what came before on the stream is over
  if (pages.size() > 4096) {
    pages.clear();
    last_page = nullptr;
  }
  through_atomics.clear();
}

void block_starts(BlockRunner& runner, unsigned threads) {
  block = &runner;
  ++block_number;
  interval = 0;
  clocks.assign(threads, ThreadClock());
}

void thread_starts(const Thread&) {}

void block_meets() {
  ++interval;
  Knowledge all;
  for (const ThreadClock& c : clocks) all.add(c.learned);
  for (ThreadClock& c : clocks) {
    c.meetings = 1;
    c.seen.fill(0);
    c.learned = all;
  }
}

void lanes_meet(unsigned warp, unsigned mask) {
  std::array<uint32_t, lanes> all{};
  Knowledge learned;
  const auto each = [&](auto f) {
    for (unsigned k = 0; k < lanes; ++k) {
      if (mask >> k & 1) f(k, clocks[warp * lanes + k]);
    }
  };
  each([&](unsigned lane, ThreadClock& c) {
    for (unsigned k = 0; k < lanes; ++k) all[k] = std::max(all[k], c.seen[k]);
    all[lane] = std::max(all[lane], c.meetings);
    learned.add(c.learned);
  });
  each([&](unsigned, ThreadClock& c) {
    c.seen = all;
    c.learned = learned;
    ++c.meetings;
  });
}

}  // namespace races

void saw_atomic(const void* address, size_t size, const void* caller) {
  using namespace races;
  if (current_thread == nullptr) return;
  ThreadClock& clock = clocks[current_thread->number];
  Knowledge& passed_on = through_atomics[address];
  clock.learned.add(passed_on);
  see(address, size, true, true, caller);
  Knowledge mine = clock.learned;
  mine.intervals[block_number] = std::max(mine.intervals[block_number], interval);
  const auto note = [&](uint32_t thread, uint32_t meetings) {
    auto& latest = mine.moments[{block_number, thread}];
    latest = std::max(latest, std::pair(interval, meetings));
  };
  note(current_thread->number, clock.meetings);
  for (unsigned k = 0; k < lanes; ++k) {
    if (clock.seen[k] > 0) note(current_thread->warp * lanes + k, clock.seen[k]);
  }
  passed_on.add(mine);
  ++clock.meetings;  // what comes now was not passed on
}

#endif

}  // namespace deployops::emulation

#if defined(DEPLOYOPS_EMULATION_RACES)

// --- what the compiler calls -------------------------------------------------------------------------------------

using deployops::emulation::races::see;

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define DEPLOYOPS_ACCESS(size)                                                                                      \
  void __tsan_read##size(void* p) { see(p, size, false, false, __builtin_return_address(0)); }                      \
  void __tsan_write##size(void* p) { see(p, size, true, false, __builtin_return_address(0)); }                      \
  void __tsan_unaligned_read##size(void* p) { see(p, size, false, false, __builtin_return_address(0)); }            \
  void __tsan_unaligned_write##size(void* p) { see(p, size, true, false, __builtin_return_address(0)); }            \
  void __tsan_volatile_read##size(void* p) { see(p, size, false, false, __builtin_return_address(0)); }             \
  void __tsan_volatile_write##size(void* p) { see(p, size, true, false, __builtin_return_address(0)); }             \
  void __tsan_unaligned_volatile_read##size(void* p) { see(p, size, false, false, __builtin_return_address(0)); }   \
  void __tsan_unaligned_volatile_write##size(void* p) { see(p, size, true, false, __builtin_return_address(0)); }   \
  void __tsan_read##size##_pc(void* p, void* pc) { see(p, size, false, false, pc); }                                \
  void __tsan_write##size##_pc(void* p, void* pc) { see(p, size, true, false, pc); }                                \
  void __tsan_read_write##size(void* p) {                                                                           \
    see(p, size, false, false, __builtin_return_address(0));                                                        \
    see(p, size, true, false, __builtin_return_address(0));                                                         \
  }
DEPLOYOPS_ACCESS(1)
DEPLOYOPS_ACCESS(2)
DEPLOYOPS_ACCESS(4)
DEPLOYOPS_ACCESS(8)
DEPLOYOPS_ACCESS(16)
#undef DEPLOYOPS_ACCESS

void __tsan_read_range(void* p, size_t size) { see(p, size, false, false, __builtin_return_address(0)); }
void __tsan_write_range(void* p, size_t size) { see(p, size, true, false, __builtin_return_address(0)); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void* __tsan_memcpy(void* to, const void* from, size_t size) {
  see(from, size, false, false, __builtin_return_address(0));
  see(to, size, true, false, __builtin_return_address(0));
  return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, size_t size) {
  see(from, size, false, false, __builtin_return_address(0));
  see(to, size, true, false, __builtin_return_address(0));
  return std::memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, size_t size) {
  see(to, size, true, false, __builtin_return_address(0));
  return std::memset(to, value, size);
}
}

#endif
