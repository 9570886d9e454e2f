#pragma once
// Where the threads of a team wait for one another, many times a step: it spins briefly, since
// phases are short and even, then sleeps, so that on a machine with other work the thread that is
// waited for gets the core. (libgomp's barrier spins for milliseconds: with 11 other processes on 2
// cores, generation fell from 1,100 tokens/s to 25.)

#include <hwy/cache_control.h>

#include <atomic>
#include <cstdint>

#include "runtime/mesh/shared_memory_group.h"

namespace quintet::decoding {

class TeamBarrier {
 public:
  /// `ranks`: each with such a team; null: this one is alone.
  explicit TeamBarrier(int64_t threads, SharedMemoryGroup* ranks = nullptr)
      : threads_(threads), ranks_(ranks) {}

  /// Returns when all threads of the team have called it; what they wrote before is visible after.
  void wait() { meet(nullptr); }
  /// The same for the threads of all ranks.
  void wait_for_ranks() { meet(ranks_); }

 private:
  void meet(SharedMemoryGroup* ranks) {
    const uint32_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      if (ranks != nullptr) ranks->wait();
      arrived_.store(0, std::memory_order_relaxed);
      round_.fetch_add(1, std::memory_order_release);
      round_.notify_all();
      return;
    }
    for (int i = 0; i < kSpins; ++i) {
      if (round_.load(std::memory_order_acquire) != round) return;
      hwy::Pause();
    }
    round_.wait(round, std::memory_order_acquire);
  }

  static constexpr int kSpins = 1000;  // about 40 us on Emerald Rapids
  const int64_t threads_;
  SharedMemoryGroup* const ranks_;
  alignas(64) std::atomic<int64_t> arrived_{0};  // apart: who waits reads round_ all the time
  alignas(64) std::atomic<uint32_t> round_{0};
};

}  // namespace quintet::decoding
