#pragma once
// A GPU's part of a run's state, copied into pinned memory beside the steps that follow the save.
//
//   snapshot.take(to_slices(trainer, dtype), dtype, device);
//   checkpoints.save_async(step, [&] { return snapshot.finish(); }, state_json);

#include "apps/train/state/state_arrays.h"

namespace quintet {

class DeviceSnapshot {
 public:
  /// Queues the copies; the next update of the trainer waits for them on the device, the host does not. Takes
  /// pinned memory of the size of the slices, which is kept; an earlier copy is overwritten.
  void take(const StateSlices& state, const std::string& dtype, Device& device);
  /// Waits for the copies and rounds parameters to `dtype`: the slices point into the copy. From any
  /// thread, once. Throws kNonFinite for numbers that are not finite.
  std::vector<TensorSlice> finish();

 private:
  Device* device_ = nullptr;
  std::string dtype_;
  Buffer memory_;
  int64_t capacity_ = 0;
  std::vector<TensorSlice> slices_;
};

}  // namespace quintet
