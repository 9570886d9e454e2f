#pragma once
// What the blocks hold that one thread allocates, whatever memory they lie in: ranks that are threads
// of a process share an allocator, a meter is one rank's. Bytes as asked for, not as rounded.
//
//   MemoryMeter meter;
//   const MemoryMeter::Use use(meter);
//   ...
//   meter.peak();   // by kind, at the moment when the sum was highest

#include <numeric>
#include <string_view>

#include "runtime/base/memory/memory.h"

namespace quintet {

/// "activations", "optimizer state"
std::string_view name_of(MemoryKind kind);

/// A block that was allocated as something else holds `kind` from now on.
void count_as(const Buffer& block, MemoryKind kind);

class MemoryMeter {
 public:
  using Kinds = std::array<int64_t, kMemoryKinds>;  // bytes by MemoryKind
  static int64_t sum(const Kinds& kinds) {
    return std::accumulate(kinds.begin(), kinds.end(), int64_t{0});
  }
  /// Blocks count until they are let go of, by whatever thread and however long after.
  struct State {
    mutable std::mutex mutex;
    Kinds used{}, peak{};
    void add(MemoryKind kind, int64_t bytes);
    void move(MemoryKind from, MemoryKind to, int64_t bytes);
  };

  /// This thread's allocations count during its lifetime.
  using Use = ContextMember<&ExecutionContext::meter>;
  const std::shared_ptr<State>& state() const { return state_; }

  Kinds used() const;
  Kinds peak() const;
  void reset_peak();

 private:
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace quintet
