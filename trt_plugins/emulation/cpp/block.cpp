#include "block.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "races.h"
#include "stack_switch.h"

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace deployops::emulation {

thread_local Thread* current_thread = nullptr;
thread_local BlockRunner* current_runner = nullptr;

Fiber::~Fiber() {
  if (stack != nullptr) stack_switch::free_stack(stack, BlockRunner::stack_size);
}

// --- a block -----------------------------------------------------------------------------------------------------

void BlockRunner::prepare(const Launch& launch) {
  launch_ = launch;
  prepared_ = true;
  threads_ = launch.block.x * launch.block.y * launch.block.z;
  random_state_ = launch.schedule.seed * 2654435761u + 1;
  static_ = static_shared_memory();
  const size_t page = page_size(), inner = (launch.dynamic_shared + page - 1) / page * page;
  if (inner > dynamic_capacity_) {
    if (dynamic_mapping_ != nullptr) munmap(dynamic_mapping_, dynamic_capacity_ + page);
    void* mapped = mmap(nullptr, inner + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    dynamic_mapping_ = static_cast<char*>(mapped);
    dynamic_capacity_ = inner;
    mprotect(dynamic_mapping_ + inner, page, PROT_NONE);
  }
  // At the guard, as far as the alignment that CUDA promises allows.
  const size_t held = (launch.dynamic_shared + 15) / 16 * 16;
  dynamic_.begin = dynamic_mapping_ == nullptr ? nullptr : dynamic_mapping_ + dynamic_capacity_ - held;
  dynamic_.end = dynamic_.begin + launch.dynamic_shared;
}

bool BlockRunner::run(uint3 block_index) {
  block_index_ = block_index;
  started_ = arrived_ = 0;
  alive_ = threads_;
  failed_ = false;
  ready_.clear();
  ready_head_ = 0;
  live_.clear();
  warps_.resize((threads_ + warp_size - 1) / warp_size);
  for (unsigned w = 0; w < warps_.size(); ++w) {
    const unsigned count = std::min(warp_size, threads_ - w * warp_size);
    warps_[w].alive = count == warp_size ? ~0u : (1u << count) - 1;
    for (auto& meeting : warps_[w].meetings) meeting->arrived = 0;
  }
  order_.clear();
  if (launch_.schedule.seed != 0) {
    for (unsigned i = 0; i < threads_; ++i) order_.push_back(i);
    for (unsigned i = threads_; i > 1; --i) std::swap(order_[i - 1], order_[random(i)]);
  }
  fill_shared_memory();
  races::block_starts(*this, threads_);
  stack_switch::enter(main_stack_, main_stack_size_);
  current_runner = this;
  running_ = &main_;
  while (alive_ > 0 && !failed_) {
    if (wants_new_thread()) {
      switch_to(fiber_for_new_thread());
    } else if (ready_head_ < ready_.size()) {
      switch_to(take_ready());
    } else {
      report_deadlock();
    }
  }
  current_thread = nullptr;
  current_runner = nullptr;
  if (!failed_) expect_nothing_beside_dynamic();
  if (failed_) {
    // What was left standing in the middle of a kernel starts anew.
    fibers_.clear();
    idle_.clear();
  }
  return !failed_;
}

void BlockRunner::fill_shared_memory() {
  // What is read without having been written shows in the results.
  if (static_.begin != nullptr) {
    // Among these variables are the emulation's own; the others of them are set when a thread starts.
    Thread* const thread = current_thread;
    BlockRunner* const runner = current_runner;
    const bool prepared = prepared_for_faults;
    std::memset(static_.begin, fill(), size_t(static_.end - static_.begin));
    current_thread = thread;
    current_runner = runner;
    prepared_for_faults = prepared;
  }
  // Up to the guard: what lies there is read as unwritten memory is, and nobody writes it.
  if (launch_.dynamic_shared > 0) std::memset(dynamic_.begin, fill(), size_t(dynamic_guard() - dynamic_.begin));
}

// What is not a multiple of 16 bytes does not reach the guard.
void BlockRunner::expect_nothing_beside_dynamic() {
  if (launch_.dynamic_shared == 0) return;
  const char* const written =
      std::find_if(dynamic_.end, dynamic_guard(), [](char c) { return static_cast<unsigned char>(c) != fill(); });
  if (written == dynamic_guard()) return;
  std::snprintf(failure_, sizeof failure_,
                "block (%u, %u, %u): writes %td bytes beyond the end of the dynamic shared memory, which has %td",
                block_index_.x, block_index_.y, block_index_.z, written - dynamic_.end, dynamic_.end - dynamic_.begin);
  failed_ = true;
}

unsigned BlockRunner::random(unsigned below) {
  random_state_ = random_state_ * 1664525u + 1013904223u;  // Numerical Recipes, 7.1
  return (random_state_ >> 8) % below;
}

// --- threads -----------------------------------------------------------------------------------------------------

void BlockRunner::thread_loop() {
  stack_switch::started();
  BlockRunner& runner = *current_runner;
  for (;;) {
    Fiber& fiber = *runner.running_;
    do {
      runner.run_thread(fiber, runner.next_number());
    } while (runner.wants_new_thread());
    runner.idle_.push_back(&fiber);
    runner.continue_elsewhere();
  }
}

unsigned BlockRunner::next_number() {
  const unsigned k = started_++;
  return order_.empty() ? k : order_[k];
}

bool BlockRunner::wants_new_thread() {
  if (started_ == threads_ || failed_) return false;
  if (ready_head_ == ready_.size()) return true;
  return launch_.schedule.seed != 0 && random(2) == 0;
}

void BlockRunner::run_thread(Fiber& fiber, unsigned number) {
  Thread& t = fiber.thread;
  const dim3& size = launch_.block;
  t.number = number;
  t.lane = number % warp_size;
  t.warp = number / warp_size;
  t.thread_index = {number % size.x, number / size.x % size.y, number / (size.x * size.y)};
  t.block_index = block_index_;
  t.dynamic_shared = dynamic_.begin;
  fiber.state = Fiber::running;
  fiber.among_live = live_.size();
  live_.push_back(&fiber);
  warps_[t.warp].lanes[t.lane] = &fiber;
  current_thread = &t;
  threadIdx = t.thread_index;
  blockIdx = block_index_;
  blockDim = {size.x, size.y, size.z};
  gridDim = {launch_.grid.x, launch_.grid.y, launch_.grid.z};
  races::thread_starts(t);
  launch_.body(launch_.call);
  thread_ends(fiber);
}

void BlockRunner::thread_ends(Fiber& fiber) {
  const Thread& t = fiber.thread;
  Warp& warp = warps_[t.warp];
  warp.alive &= ~(1u << t.lane);
  --alive_;
  live_.back()->among_live = fiber.among_live;
  std::swap(live_[fiber.among_live], live_.back());
  live_.pop_back();
  if (arrived_ > 0) {
    fail("thread %u of the block ends while %u others wait for it at __syncthreads, %s:%d", t.number, arrived_,
         barrier_place_.file, barrier_place_.line);
  }
  for (const auto& m : warp.meetings) {
    if (m->arrived != 0 && (m->mask >> t.lane & 1) != 0) {
      fail("lane %u of warp %u ends while others, whose mask 0x%08x names it, wait at %s:%d", t.lane, t.warp, m->mask,
           m->place.file, m->place.line);
    }
  }
}

Fiber& BlockRunner::fiber_for_new_thread() {
  if (!idle_.empty()) {
    Fiber& fiber = *idle_.back();
    idle_.pop_back();
    return fiber;
  }
  fibers_.push_back(std::make_unique<Fiber>());
  Fiber& fiber = *fibers_.back();
  fiber.stack = stack_switch::new_stack(stack_size);
  // Not all at the same place in a page: they would share few lines of the first cache.
  const size_t unused = fibers_.size() % 61 * 576;
  fiber.context = new_context(fiber.stack, stack_size - unused, &BlockRunner::thread_loop);
  return fiber;
}

void BlockRunner::make_ready(Fiber& fiber) {
  fiber.state = Fiber::running;
  ready_.push_back(&fiber);
}

Fiber& BlockRunner::take_ready() {
  if (launch_.schedule.seed != 0) {
    std::swap(ready_[ready_head_], ready_[ready_head_ + random(unsigned(ready_.size() - ready_head_))]);
  }
  Fiber& fiber = *ready_[ready_head_++];
  if (ready_head_ == ready_.size()) {
    ready_.clear();
    ready_head_ = 0;
  }
  return fiber;
}

void BlockRunner::switch_to(Fiber& fiber) {
  current_thread = &fiber.thread;
  threadIdx = fiber.thread.thread_index;
  if (&fiber == running_) return;
  Fiber& left = *running_;
  running_ = &fiber;
  const bool to_main = &fiber == &main_;
  stack_switch::leaves(left.sanitizer_stack, to_main ? main_stack_ : fiber.stack,
                       to_main ? main_stack_size_ : stack_size);
  switch_context(&left.context, fiber.context);
  stack_switch::returned(left.sanitizer_stack);
}

// The running thread waits, or its fiber has nothing to do.
void BlockRunner::continue_elsewhere() {
  if (failed_) return switch_to(main_);
  if (wants_new_thread()) return switch_to(fiber_for_new_thread());
  if (ready_head_ < ready_.size()) return switch_to(take_ready());
  switch_to(main_);  // the block is done, or nobody can go on
}

// --- what went wrong ---------------------------------------------------------------------------------------------

void BlockRunner::fail(const char* format, ...) {
  char who[160] = "", what[1600];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  std::snprintf(who, sizeof who, "block (%u, %u, %u)", block_index_.x, block_index_.y, block_index_.z);
  std::snprintf(failure_, sizeof failure_, "%s: %s", who, what);
  failed_ = true;
  switch_to(main_);
  std::abort();  // nobody comes back to a thread that failed
}

void BlockRunner::report_deadlock() {
  char text[1600];
  int length = std::snprintf(text, sizeof text, "deadlock: each of the %u threads left waits for others", alive_);
  int told = 0;
  for (const Fiber* f : live_) {
    if (++told > 4) break;
    length += std::snprintf(text + length, sizeof text - size_t(length), "%s thread %u (lane %u of warp %u) %s at %s:%d",
                            told == 1 ? ":" : ",", f->thread.number, f->thread.lane, f->thread.warp,
                            f->state == Fiber::at_barrier ? "at __syncthreads" : "for lanes of its warp",
                            f->place.file, f->place.line);
  }
  std::snprintf(failure_, sizeof failure_, "block (%u, %u, %u): %s%s", block_index_.x, block_index_.y, block_index_.z,
                text, live_.size() > 4 ? ", …" : "");
  failed_ = true;
}

bool BlockRunner::describe_memory(const void* address, char* text, size_t size) const {
  const char* p = static_cast<const char*>(address);
  const char* mapping_end = dynamic_mapping_ == nullptr ? nullptr : dynamic_mapping_ + dynamic_capacity_ + page_size();
  if (dynamic_mapping_ != nullptr && p >= dynamic_.end && p < mapping_end) {
    std::snprintf(text, size, "%td bytes beyond the end of the dynamic shared memory, which has %td", p - dynamic_.end,
                  dynamic_.end - dynamic_.begin);
    return true;
  }
  for (const auto& f : fibers_) {
    if (p >= f->stack - page_size() && p < f->stack) {
      std::snprintf(text, size, "beyond the end of its stack: more than %zu bytes of local variables", stack_size);
      return true;
    }
  }
  return false;
}

void describe_current_thread(char* text, size_t size) {
  text[0] = 0;
  if (current_thread == nullptr) return;
  const uint3 &t = current_thread->thread_index, &b = current_thread->block_index;
  std::snprintf(text, size, "thread (%u, %u, %u) of block (%u, %u, %u)", t.x, t.y, t.z, b.x, b.y, b.z);
}

bool describe_block_memory(const void* address, char* text, size_t size) {
  return current_runner != nullptr && current_runner->describe_memory(address, text, size);
}

}  // namespace deployops::emulation
