#include "kernels/step_keys.h"

namespace quintet {
namespace {

constexpr size_t kMostKeys = 4096;
constexpr auto kKeyBytes = static_cast<int64_t>(sizeof(Key));

}  // namespace

StepKeys::StepKeys(Key step) : step_(step) {
  Device& device = Device::current();
  on_device_ = device.memory().allocate(kMostKeys * kKeyBytes);
  on_host_ = device.pinned(kMostKeys * kKeyBytes);
}

Key StepKeys::child(Key step, Place place) {
  const Key key = place.key(step);
  StepKeys* const recording = ExecutionContext::current().keys;
  if (recording == nullptr || step != recording->step_) return key;
  if (recording->slots_.try_emplace({key.a, key.b}, recording->places_.size()).second)
    recording->places_.push_back(place);
  if (recording->places_.size() > kMostKeys) throw NotRecordable("more random keys than fit");
  return key;
}

const Key* StepKeys::place_of(Key key) {
  const StepKeys* const recording = ExecutionContext::current().keys;
  if (recording == nullptr) return nullptr;
  const auto slot = recording->slots_.find({key.a, key.b});
  if (slot == recording->slots_.end())
    throw NotRecordable("a random key that does not follow from the step's");
  return reinterpret_cast<const Key*>(recording->on_device_.get()) + slot->second;
}

void StepKeys::set(Key step) {
  // The step before was waited for, so its keys are no longer read here.
  auto* const keys = reinterpret_cast<Key*>(on_host_.get());
  for (size_t i = 0; i < places_.size(); ++i) keys[i] = places_[i].key(step);
  Device::current().copy(on_device_.get(), keys, static_cast<int64_t>(places_.size()) * kKeyBytes);
}

}  // namespace quintet
