#include "kernels/simt/emulator/engine/kernel_run.h"

#include <fmt/format.h>

#include <atomic>
#include <deque>

#include "kernels/simt/emulator/barrier.h"
#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/engine/device_memory.h"
#include "kernels/simt/emulator/engine/parts.h"
#include "runtime/base/check.h"

namespace quintet::emulated::simt::emulator {
namespace {

// How many kernels begin before one ends: the start of each may be allowed before the one before it
// has waited, so a kernel may see the memory of some kernels ago.
constexpr size_t kMostAhead = 3;

std::atomic<uint64_t> current_seed = 0;
std::atomic<uint64_t> launch_number = 0;

void check(const Launch& how) {
  const uint64_t threads = uint64_t{how.block.x} * how.block.y * how.block.z;
  QT_ASSERT(threads >= 1 && threads <= 1024 && how.block.z <= 64);
  QT_ASSERT(how.grid.x >= 1 && how.grid.y >= 1 && how.grid.z >= 1);
  QT_ASSERT(how.grid.x <= 0x7fffffffu && how.grid.y <= 65535 && how.grid.z <= 65535);
  QT_ASSERT(how.cluster >= 1 && how.cluster <= 16 && how.grid.x % how.cluster == 0);
  if (how.shared > device().shared_limit) {
    throw Bug(fmt::format("{}:{}: {} bytes of shared memory; a block has {}", how.file, how.line,
                          how.shared, device().shared_limit));
  }
}

Shape checked_shape(const Launch& how) {
  check(how);
  return {how.grid,  how.block, how.cluster, how.shared, how.cooperative,
          how.early, how.name,  how.file,    how.line};
}

uint64_t blocks_of(const Launch& how) { return uint64_t{how.grid.x} * how.grid.y * how.grid.z; }

}  // namespace

void set_seed(uint64_t seed) {
  current_seed = seed;
  launch_number = 0;
}
uint64_t seed() { return current_seed; }

KernelRun::KernelRun(const Launch& how, Body body)
    : shape_(checked_shape(how)),
      body_(std::move(body)),
      seed_(current_seed),
      number_(++launch_number),
      together_(how.cooperative ? blocks_of(how) : how.cluster),
      sets_(blocks_of(how) / together_),
      resident_blocks_(shape_, body_, seed_) {
  ++mutable_counters().launches;
}

void KernelRun::begin() { run_next_set(false); }

void KernelRun::finish() {
  if (next_set_ > 0) resident_blocks_.finish();
  while (next_set_ < sets_) run_next_set(true);
}

void KernelRun::run_next_set(bool previous_ended) {
  // In an order without meaning: forward or backward by the seed.
  const uint64_t set = (seed_ & 1u) ? sets_ - 1 - next_set_ : next_set_;
  ++next_set_;
  const dim3& grid = shape_.grid;
  std::vector<uint3> indices;
  for (uint64_t b = set * together_; b < (set + 1) * together_; ++b)
    indices.push_back({static_cast<unsigned>(b % grid.x),
                       static_cast<unsigned>(b / grid.x % grid.y),
                       static_cast<unsigned>(b / grid.x / grid.y)});
  resident_blocks_.run(indices, number_ * 0x10000 + set, previous_ended);
}

void replay(std::span<const Work> work) {
  const DeviceMemoryAccess access;
  std::deque<std::shared_ptr<KernelRun>> begun;  // work[i], work[i + 1], ...
  for (size_t i = 0; i < work.size(); ++i) {
    if (!work[i].launch) {
      work[i].run();
      continue;
    }
    if (begun.empty()) begun.push_back(work[i].launch());
    for (size_t next = i + begun.size();
         begun.size() <= kMostAhead && next < work.size() && work[next].early; ++next) {
      begun.push_back(work[next].launch());
      begun.back()->begin();
    }
    begun.front()->finish();
    begun.pop_front();
  }
}

void wait_for_previous() { resident_blocks().wait_for_previous(); }

}  // namespace quintet::emulated::simt::emulator
