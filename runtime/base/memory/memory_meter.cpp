#include "runtime/base/memory/memory_meter.h"

namespace quintet {

std::string_view name_of(MemoryKind kind) {
  constexpr std::string_view kNames[kMemoryKinds] = {"activations", "parameters", "gradients",
                                                     "optimizer state", "scratch"};
  return kNames[static_cast<size_t>(kind)];
}

void MemoryMeter::State::add(MemoryKind kind, int64_t bytes) {
  const std::lock_guard lock(mutex);
  used[static_cast<size_t>(kind)] += bytes;
  if (sum(used) > sum(peak)) peak = used;
}

void MemoryMeter::State::move(MemoryKind from, MemoryKind to, int64_t bytes) {
  const std::lock_guard lock(mutex);
  used[static_cast<size_t>(from)] -= bytes;
  used[static_cast<size_t>(to)] += bytes;
}

MemoryMeter::Kinds MemoryMeter::used() const {
  const std::lock_guard lock(state_->mutex);
  return state_->used;
}
MemoryMeter::Kinds MemoryMeter::peak() const {
  const std::lock_guard lock(state_->mutex);
  return state_->peak;
}
void MemoryMeter::reset_peak() {
  const std::lock_guard lock(state_->mutex);
  state_->peak = state_->used;
}

}  // namespace quintet
