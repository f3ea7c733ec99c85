// Where threads wait for each other: the barrier of a block, and the meetings of a warp's lanes.
#include <cstring>

#include "block.h"
#include "races.h"

namespace deployops::emulation {

namespace {

bool same_place(const Place& a, const Place& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

// At most 16 bytes, most often 4.
void copy_value(void* to, const void* from, size_t size) {
  if (size == 4) {
    std::memcpy(to, from, 4);
  } else {
    std::memcpy(to, from, size);
  }
}

template <class F>
void each_lane(unsigned mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(unsigned(__builtin_ctz(mask)));
}

}  // namespace

// --- barriers ----------------------------------------------------------------------------------------------------

int BlockRunner::barrier(Reduction reduction, int value, Place place) {
  Fiber& fiber = *running_;
  fiber.place = place;
  if (arrived_ == 0) {
    barrier_place_ = place;
  } else if (!same_place(barrier_place_, place)) {
    fail("the threads of the block meet at two barriers: __syncthreads at %s:%d and at %s:%d", barrier_place_.file,
         barrier_place_.line, place.file, place.line);
  }
  const unsigned mine = barrier_generation_ & 1;
  int& reduced = reduced_[mine];
  if (arrived_ == 0) reduced = reduction == Reduction::all;
  switch (reduction) {
    case Reduction::none: break;
    case Reduction::count: reduced += value; break;
    case Reduction::all: reduced &= value; break;
    case Reduction::any: reduced |= value; break;
  }
  fiber.state = Fiber::at_barrier;
  if (++arrived_ == threads_) {
    release_barrier();
  } else if (arrived_ == alive_) {
    fail("%u threads of the block have ended and never come to __syncthreads at %s:%d, where the others are",
         threads_ - alive_, place.file, place.line);
  } else {
    continue_elsewhere();
  }
  return reduced_[mine];
}

void BlockRunner::release_barrier() {
  arrived_ = 0;
  ++barrier_generation_;
  races::block_meets();
  for (Fiber* f : live_) {
    if (f == running_) {
      f->state = Fiber::running;
    } else {
      make_ready(*f);
    }
  }
}

// --- meetings of lanes -------------------------------------------------------------------------------------------

Meeting& BlockRunner::meet(unsigned mask, const void* brought, size_t size, bool orders_memory, Place place,
                           unsigned& generation) {
  Fiber& fiber = *running_;
  const unsigned lane = fiber.thread.lane;
  Warp& warp = warps_[fiber.thread.warp];
  fiber.place = place;
  if (!(mask >> lane & 1)) {
    fail("lane %u of warp %u calls with the mask 0x%08x, which leaves it out, at %s:%d", lane, fiber.thread.warp, mask,
         place.file, place.line);
  }
  if ((mask & ~warp.alive) != 0) {
    const unsigned absent = unsigned(__builtin_ctz(mask & ~warp.alive));
    const bool exists = fiber.thread.warp * warp_size + absent < threads_;
    fail("the mask 0x%08x names lane %u of warp %u, which %s, at %s:%d", mask, absent, fiber.thread.warp,
         exists ? "has ended" : "does not exist: the block has too few threads", place.file, place.line);
  }
  Meeting* meeting = nullptr;
  for (auto& m : warp.meetings) {
    if (m->mask == mask) meeting = m.get();
  }
  if (meeting == nullptr) {
    warp.meetings.push_back(std::make_unique<Meeting>());
    meeting = warp.meetings.back().get();
    meeting->mask = mask;
  }
  if (meeting->arrived == 0) {
    meeting->place = place;
  } else if (!same_place(meeting->place, place)) {
    fail("the lanes of warp %u meet at two places: at %s:%d and at %s:%d", fiber.thread.warp, meeting->place.file,
         meeting->place.line, place.file, place.line);
  }
  generation = meeting->generation;
  if (size > 0) copy_value(meeting->bytes[generation & 1][lane], brought, size);
  meeting->arrived |= 1u << lane;
  if (meeting->arrived != mask) {
    fiber.state = Fiber::in_meeting;
    continue_elsewhere();
    return *meeting;
  }
  meeting->arrived = 0;
  ++meeting->generation;
  if (orders_memory) races::lanes_meet(fiber.thread.warp, mask);
  each_lane(mask & ~(1u << lane), [&](unsigned other) { make_ready(*warp.lanes[other]); });
  return *meeting;
}

// --- what kernels call -------------------------------------------------------------------------------------------

int block_barrier(Reduction reduction, int value, Place place) {
  return current_runner->barrier(reduction, value, place);
}

void require_width(int width, Place place) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    current_runner->fail("a shuffle of width %d at %s:%d; expected 1, 2, 4, 8, 16 or 32", width, place.file, place.line);
  }
}

void warp_exchange(unsigned mask, const void* brought, void* taken, size_t size, int source, bool orders_memory,
                   Place place) {
  unsigned generation;
  Meeting& meeting = current_runner->meet(mask, brought, size, orders_memory, place, generation);
  if (source < 0) return;
  if (!(mask >> source & 1)) {
    current_runner->fail("lane %u takes from lane %d, which the mask 0x%08x leaves out, at %s:%d",
                         current_thread->lane, source, mask, place.file, place.line);
  }
  copy_value(taken, meeting.bytes[generation & 1][source], size);
}

unsigned warp_ballot(unsigned mask, bool value, Place place) {
  unsigned generation, found = 0;
  const Meeting& meeting = current_runner->meet(mask, &value, sizeof value, false, place, generation);
  each_lane(mask, [&](unsigned lane) { found |= unsigned(meeting.bytes[generation & 1][lane][0] != 0) << lane; });
  return found;
}

unsigned warp_match(unsigned mask, uint64_t bits, Place place) {
  unsigned generation, found = 0;
  const Meeting& meeting = current_runner->meet(mask, &bits, sizeof bits, false, place, generation);
  each_lane(mask, [&](unsigned lane) {
    found |= unsigned(std::memcmp(meeting.bytes[generation & 1][lane], &bits, sizeof bits) == 0) << lane;
  });
  return found;
}

}  // namespace deployops::emulation
