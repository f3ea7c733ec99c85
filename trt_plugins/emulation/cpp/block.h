// One block at work: its threads, each on a stack of its own, and who waits for whom.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "context.h"
#include "include/emulation/warp.h"
#include "memory.h"

namespace deployops::emulation {

constexpr unsigned warp_size = 32;

// How the threads of a block are interleaved: 0 in their order, else at random, the same way for the same seed.
struct Schedule {
  unsigned seed = 0;
};

struct Launch {
  dim3 grid, block;
  size_t dynamic_shared;
  void (*body)(void* call);
  void* call;
  Schedule schedule;
};

// A stack, and the CUDA thread that has it now.
struct Fiber {
  enum State { running, at_barrier, in_meeting };
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();
  Thread thread{};
  void* context = nullptr;
  char* stack = nullptr;
  State state = running;
  Place place{"", 0};
  size_t among_live = 0;
  void* sanitizer_stack = nullptr;
};

// Lanes of a warp that wait for each other, by their mask.
struct Meeting {
  unsigned mask = 0, arrived = 0, generation = 0;
  Place place{"", 0};
  alignas(16) char bytes[2][32][16];
};

struct Warp {
  unsigned alive = 0;
  Fiber* lanes[32];
  std::vector<std::unique_ptr<Meeting>> meetings;
};

// Runs blocks one after another, on one thread of the operating system.
class BlockRunner {
 public:
  static constexpr size_t stack_size = 256 << 10;

  BlockRunner() = default;
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  void prepare(const Launch& launch);
  // False where a thread did something wrong; `failure()` then says what.
  bool run(uint3 block_index);
  bool unprepared() const { return !prepared_; }
  void forget() { prepared_ = false; }
  const char* failure() const { return failure_; }

  int barrier(Reduction, int value, Place);
  Meeting& meet(unsigned mask, const void* brought, size_t size, bool orders_memory, Place, unsigned& generation);
  [[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 2, 3)));

  const Fiber& running() const { return *running_; }
  bool is_shared(const void* p) const { return dynamic_.holds(p) || static_.holds(p); }
  Span stack_of_running() const { return {running_->stack, running_->stack + stack_size}; }
  bool describe_memory(const void* address, char* text, size_t size) const;

 private:
  static void thread_loop();
  void run_thread(Fiber& fiber, unsigned number);
  void thread_ends(Fiber& fiber);
  bool wants_new_thread();
  unsigned next_number();
  void continue_elsewhere();
  void switch_to(Fiber& fiber);
  Fiber& fiber_for_new_thread();
  void make_ready(Fiber& fiber);
  Fiber& take_ready();
  void release_barrier();
  void fill_shared_memory();
  void expect_nothing_beside_dynamic();
  char* dynamic_guard() const { return dynamic_mapping_ + dynamic_capacity_; }
  unsigned random(unsigned below);
  void report_deadlock();

  Launch launch_{};
  uint3 block_index_{};
  unsigned threads_ = 0, started_ = 0, alive_ = 0;
  std::vector<unsigned> order_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_, live_, ready_;
  size_t ready_head_ = 0;
  std::vector<Warp> warps_;
  Fiber main_, *running_ = &main_;
  unsigned random_state_ = 1;

  unsigned arrived_ = 0, barrier_generation_ = 0;
  Place barrier_place_{"", 0};
  int reduced_[2] = {0, 0};

  char* dynamic_mapping_ = nullptr;
  size_t dynamic_capacity_ = 0;
  Span dynamic_, static_;
  const void* main_stack_ = nullptr;
  size_t main_stack_size_ = 0;
  bool prepared_ = false, failed_ = false;
  char failure_[2048] = "";
};

extern thread_local BlockRunner* current_runner;

// "thread (3, 0, 0) of block (1, 0, 0)", for messages.
void describe_current_thread(char* text, size_t size);
// Shared memory or a stack; false where it is neither.
bool describe_block_memory(const void* address, char* text, size_t size);

}  // namespace deployops::emulation
