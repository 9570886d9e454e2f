#pragma once
// The emulator's controls, for tests and the runtime.
//
//   simt::emulator::set_seed(7);      // another order of threads, warps and asynchronous copies
//   simt::emulator::set_sm(80);       // what simt::device().sm answers: kernels choose their path by it
//
// A block's threads run as fibers on one host thread. Between two points where a thread waits it
// runs alone; which thread is next is drawn from the seed, so a missing barrier shows as a changed
// result under some seeds. Shared memory starts as NaN. Asynchronous copies and products happen at
// a moment drawn from the seed between their issue and the wait for them:
//   seed % 3 == 0   as late as possible (a wait that is missing shows)
//   seed % 3 == 1   at random
//   seed % 3 == 2   at once (memory overwritten while still in use shows)
// Errors are exceptions of type Bug thrown by launch(): deadlocks, accesses out of bounds, wrong
// masks.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "kernels/kernel.h"

namespace quintet::emulated::simt::emulator {

/// Every later launch draws from `seed` and from its number since the call.
void set_seed(uint64_t seed);
uint64_t seed();
/// The compute capability to pretend, times ten: 80 or 90.
void set_sm(int sm);
class KernelRun;  // a launch under way: engine/kernel_run.h

/// Work of the stream, as recorded: a launch of a kernel, or anything else.
struct Work {
  std::function<void()> run = nullptr;                           // anything else
  std::function<std::shared_ptr<KernelRun>()> launch = nullptr;  // of a kernel
  bool early = false;  // that kernel overlaps the ones before it
};
/// While set, launches and other work of the stream of this host thread are handed over instead of
/// run (stand-in for graph capture).
std::function<void(Work)> set_recorder(std::function<void(Work)> recorder);
bool is_recording();
/// Does recorded work. A kernel launched early begins before the kernels before it: some of its blocks
/// run up to wait_for_previous(), so that what they read or write too early shows.
void replay(std::span<const Work> work);
/// Work of the stream that is no launch: runs it, or hands it over. It must hold its arguments.
void queue(std::function<void()> work);
/// The same for what the device counts as a launch.
void queue_launch(std::function<void()> launch);
/// One in another stream than the device's own: the emulator has none, whoever has them takes it.
void queue_launch(std::function<void()> launch, Stream other);
void set_other_streams(void (*queue)(Stream other, std::function<void()> launch));

/// Counters of this host thread since it started.
struct Counters {
  uint64_t launches = 0, blocks = 0, threads = 0, switches = 0;
};
const Counters& counters();

}  // namespace quintet::emulated::simt::emulator
