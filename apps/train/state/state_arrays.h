#pragma once
// The arrays of a training run, parameters and optimizer state, to and from a checkpoint.

#include <string>
#include <vector>

#include "apps/config/checkpoint_config.h"
#include "checkpoint/checkpoint_reader.h"
#include "runtime/mesh/collectives/collectives.h"
#include "runtime/trainer/trainer.h"

namespace quintet {

/// Blocks of the trainer's arrays, and the copies that some of them point to.
struct StateSlices {
  std::vector<TensorSlice> slices;
  std::vector<HostArray> copies;
};
/// target/... as `dtype` ("float32" or "bfloat16"), state/param_states/... as they are, state/step.
StateSlices to_slices(Trainer& trainer, const std::string& dtype);
/// Leaves those that this rank writes: of a block that several ranks hold one writes it, in turn.
void keep_own(std::vector<TensorSlice>& slices, const Group& ranks);

/// A run's own checkpoint: every array must be there with its shape. Throws kData listing all that differ.
void load_arrays(const CheckpointReader& checkpoint, Trainer& trainer);

/// Another run's checkpoint, as RestoreCheckpointConfig says: assignment rules, strictness, arrays that
/// keep their initial value. Throws kData listing all names that do not fit.
void load_arrays(const CheckpointReader& checkpoint, const RestoreCheckpointConfig& config,
                 Trainer& trainer);

}  // namespace quintet
