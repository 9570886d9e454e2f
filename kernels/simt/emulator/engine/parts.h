#pragma once
// What the scheduler asks of the other parts of the emulator. Internal to the engine.

#include <string>

#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/engine.h"

namespace quintet::emulated::simt::emulator {

/// A block, a thread about to be used again.
void reset_block(Block& block);
void reset_warp(Warp& warp);
void reset_thread(Thread& thread);
/// The running thread has returned from the kernel.
void finish_thread(Thread& thread);
void finish_copies(Thread& thread);
void finish_stores(Thread& thread);
void finish_products(Thread& thread);
void leave_cluster(Thread& thread);
/// "__syncthreads (barrier 0: 96 of 128 threads)": what a suspended thread waits for.
std::string describe_wait(const Thread& thread);

Counters& mutable_counters();

}  // namespace quintet::emulated::simt::emulator
