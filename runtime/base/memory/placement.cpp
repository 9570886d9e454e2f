#include "runtime/base/memory/placement.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

namespace quintet {
namespace {

thread_local const MemoryPlacement* placement_of_thread = nullptr;
thread_local MemoryTrace* trace_of_thread = nullptr;

int64_t events_of(std::span<const BlockLife> blocks) {
  int64_t events = 0;
  for (const BlockLife& block : blocks) events = std::max({events, block.begin + 1, block.end});
  return events;
}

/// The event after which most bytes are held.
int64_t fullest_event(std::span<const BlockLife> blocks, int64_t events) {
  std::vector<int64_t> held(static_cast<size_t>(events) + 1);
  for (const BlockLife& block : blocks) {
    held[static_cast<size_t>(block.begin)] += block.bytes;
    held[static_cast<size_t>(block.end)] -= block.bytes;
  }
  std::partial_sum(held.begin(), held.end(), held.begin());
  return std::max_element(held.begin(), held.end()) - held.begin();
}

/// Blocks that have a place, by when they live.
class PlacedBlocks {
 public:
  PlacedBlocks(std::span<const BlockLife> blocks, int64_t events)
      : blocks_(blocks),
        events_(static_cast<size_t>(events)),
        through_(2 * events_),
        begun_at_(events_, kNone) {}

  void add(size_t index) {
    const BlockLife& block = blocks_[index];
    begun_at_[static_cast<size_t>(block.begin)] = index;
    size_t first = static_cast<size_t>(block.begin) + events_;
    size_t last = static_cast<size_t>(block.end) + events_;
    for (; first < last; first /= 2, last /= 2) {
      if (first % 2 == 1) through_[first++].push_back(index);
      if (last % 2 == 1) through_[--last].push_back(index);
    }
  }
  /// Those that live at the same time as this one at some time.
  std::vector<size_t> beside(const BlockLife& block) const {
    std::vector<size_t> found;
    for (size_t node = static_cast<size_t>(block.begin) + events_; node > 0; node /= 2)
      found.insert(found.end(), through_[node].begin(), through_[node].end());
    for (auto event = static_cast<size_t>(block.begin) + 1; event < static_cast<size_t>(block.end);
         ++event)
      if (begun_at_[event] != kNone) found.push_back(begun_at_[event]);
    return found;
  }

 private:
  static constexpr size_t kNone = ~size_t{0};
  std::span<const BlockLife> blocks_;
  size_t events_;
  std::vector<std::vector<size_t>>
      through_;                   // a tree over events: those that live through all of a node's
  std::vector<size_t> begun_at_;  // an event
};

/// Into the smallest gap between `beside`, which are in order, else behind them.
int64_t offset_between(std::span<const MemoryPlacement::Place> beside, int64_t bytes) {
  int64_t end = 0, best = -1, smallest = 0;
  for (const MemoryPlacement::Place& place : beside) {
    const int64_t gap = place.offset - end;
    if (gap >= bytes && (best < 0 || gap < smallest)) best = end, smallest = gap;
    end = std::max(end, place.offset + place.bytes);
  }
  return best < 0 ? end : best;
}

}  // namespace

// Of a step of 5,000 blocks 0.1 s, of one of 77,000 in 16 microbatches 2.3 s on an EPYC core, once a recording.
MemoryPlacement place_blocks(std::span<const BlockLife> blocks) {
  const int64_t events = events_of(blocks), fullest = fullest_event(blocks, events);
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto others = std::stable_partition(order.begin(), order.end(), [&](size_t i) {
    return blocks[i].begin <= fullest && fullest < blocks[i].end;
  });
  std::stable_sort(others, order.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });

  MemoryPlacement placement{.places = std::vector<MemoryPlacement::Place>(blocks.size())};
  PlacedBlocks placed(blocks, events);
  std::vector<MemoryPlacement::Place> beside;
  for (const size_t i : order) {
    beside.clear();
    for (const size_t other : placed.beside(blocks[i])) beside.push_back(placement.places[other]);
    std::sort(beside.begin(), beside.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
    const int64_t bytes = blocks[i].bytes, offset = offset_between(beside, bytes);
    placement.places[i] = {bytes, offset};
    placement.bytes = std::max(placement.bytes, offset + bytes);
    placed.add(i);
  }
  return placement;
}

MemoryPlacement::Use::Use(const MemoryPlacement& placement)
    : before_(std::exchange(placement_of_thread, &placement)) {}
MemoryPlacement::Use::~Use() { placement_of_thread = before_; }
const MemoryPlacement* MemoryPlacement::current() { return placement_of_thread; }

struct MemoryTrace::Block::Lives {
  std::mutex mutex;
  int64_t events = 0;
  std::vector<BlockLife> blocks;  // end 0: it still lives
};

MemoryTrace::MemoryTrace(Memory& memory)
    : memory_(memory),
      lives_(std::make_shared<Block::Lives>()),
      before_(std::exchange(trace_of_thread, this)) {}
MemoryTrace::~MemoryTrace() {
  if (lives_ != nullptr) close();
}

std::vector<BlockLife> MemoryTrace::close() {
  trace_of_thread = before_;
  const std::shared_ptr<Block::Lives> lives = std::move(lives_);
  const std::lock_guard lock(lives->mutex);
  for (BlockLife& block : lives->blocks)
    if (block.end == 0) block.end = lives->events;
  return std::move(lives->blocks);
}

MemoryTrace::Block MemoryTrace::begin(const Memory& memory, int64_t bytes) {
  Block block;
  if (trace_of_thread == nullptr || &trace_of_thread->memory_ != &memory) return block;
  Block::Lives& lives = *trace_of_thread->lives_;
  const std::lock_guard lock(lives.mutex);
  block.lives_ = trace_of_thread->lives_;
  block.index_ = lives.blocks.size();
  lives.blocks.push_back({.bytes = bytes, .begin = lives.events++});
  return block;
}

void MemoryTrace::Block::end() const {
  const std::shared_ptr<Lives> lives = lives_.lock();
  if (lives == nullptr) return;
  const std::lock_guard lock(lives->mutex);
  if (index_ < lives->blocks.size()) lives->blocks[index_].end = lives->events++;
}

MemoryTrace::Pause::Pause() : before_(std::exchange(trace_of_thread, nullptr)) {}
MemoryTrace::Pause::~Pause() { trace_of_thread = before_; }

}  // namespace quintet
