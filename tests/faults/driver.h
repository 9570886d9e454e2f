#pragma once
// What the driver program writes, as a function of the step, so that a reader can tell.

#include "checkpoint/checkpoint.h"

namespace quintet::testing {

/// A training state of a few tensors; every value depends on the step.
inline HostArrays state_at(int64_t step) {
  HostArrays state;
  for (const auto& [name, size] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"target/kernel", 3000}, {"target/bias", 7}, {"state/step", 1}}) {
    HostArray array(DType::i64, name == std::string("state/step") ? std::vector<int64_t>{}
                                                                  : std::vector<int64_t>{size});
    for (int64_t& value : array.as<int64_t>()) value = step * 1'000'003 + size;
    state.emplace(name, std::move(array));
  }
  return state;
}

inline std::string json_at(int64_t step) { return fmt::format("{{\"position\":{}}}", step * 64); }

/// Throws kBug if a checkpoint holds anything but its step's state.
inline void check_state(const Checkpoint& checkpoint) {
  check_tensors_match("restored", checkpoint.arrays, state_at(checkpoint.step));
  for (const auto& [name, array] : state_at(checkpoint.step))
    QT_ASSERT(checkpoint.arrays.at(name).bytes == array.bytes);
  QT_ASSERT(checkpoint.state_json == json_at(checkpoint.step));
}

}  // namespace quintet::testing
