#pragma once
// What a thread has under way. Internal to the engine.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/simt/emulator/engine.h"

namespace quintet::emulated::simt::emulator {

struct Copy {
  void* dst;
  const void* src;
  size_t bytes;
  bool valid;
};
/// cp.async of a thread.
struct Copies {
  std::vector<Copy> open;                // not committed yet
  std::deque<std::vector<Copy>> groups;  // oldest first
};

/// An mbarrier. Its word in shared memory holds a mark and its number in the block.
struct PhaseBarrier {
  size_t offset = 0;  // in shared memory
  uint32_t expected = 0, pending = 0;
  int64_t bytes = 0;  // expected and not arrived
  uint32_t phase = 0;
  std::vector<Thread*> waiting;
};

/// A bulk store: reads shared memory, then writes global memory, at moments of the schedule's
/// choosing.
struct BulkStore {
  std::function<void(std::vector<char>&)> read;
  std::function<void(const std::vector<char>&)> write;
  std::vector<char> data;
  int done = 0;  // 1: has read, 2: has written
  void advance(int to) {
    if (done < 1 && to >= 1) read(data), done = 1;
    if (done < 2 && to >= 2) write(data), done = 2;
  }
};
struct BulkStores {
  std::vector<std::shared_ptr<BulkStore>> open;
  std::deque<std::vector<std::shared_ptr<BulkStore>>> groups;  // oldest first
};

/// Accumulators of a warp that products under way use: its [16, n] quarter.
struct WarpAccumulators {
  int n = 0;
  std::vector<float> matrix;
};
/// A lane's part of them.
struct Accumulators {
  float* registers = nullptr;  // the kernel's array, NaN meanwhile
  std::shared_ptr<WarpAccumulators> of_warp;
  uint64_t last = 0;  // number of the last product that uses them
};
/// wgmma of a thread.
struct Products {
  std::vector<Accumulators> accumulators;
  uint64_t issued = 0;
  std::deque<uint64_t> groups;  // number of products issued at each commit, oldest first
  bool fenced = false;          // since the last wait
};
struct Product;  // wgmma.cpp
struct WarpProducts {
  std::deque<std::shared_ptr<Product>> queue;  // not executed yet
  uint64_t executed = 0;                       // number of the first in the queue
  uint64_t created = 0;
};

}  // namespace quintet::emulated::simt::emulator
