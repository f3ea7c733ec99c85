// Which accesses to memory have no order: a detector of races between CUDA threads.
//
// The compiler announces every access of a kernel (-fsanitize=thread); the announcements are answered here and not by
// ThreadSanitizer's own library, so that each CUDA thread is a thread, barriers are barriers, and messages are about
// blocks and lanes. Two accesses are ordered by the program of one thread, by __syncthreads, by __syncwarp between lanes
// that took part, and by atomic operations on one address (each taken to release and to acquire). A shuffle or a vote
// orders no memory, by CUDA's rules.
#pragma once

#include "include/emulation/keywords.h"

namespace deployops::emulation {

class BlockRunner;

namespace races {

#if defined(DEPLOYOPS_EMULATION_RACES)
void launch_starts();
void block_starts(BlockRunner& runner, unsigned threads);
void thread_starts(const Thread& thread);
void block_meets();
void lanes_meet(unsigned warp, unsigned mask);
#else
inline void launch_starts() {}
inline void block_starts(BlockRunner&, unsigned) {}
inline void thread_starts(const Thread&) {}
inline void block_meets() {}
inline void lanes_meet(unsigned, unsigned) {}
#endif

}  // namespace races
}  // namespace deployops::emulation
