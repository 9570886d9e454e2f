#pragma once
// The arrays of a training run, parameters and optimizer state, to and from a checkpoint.

#include <string>
#include <vector>

#include "apps/model/restored_checkpoint.h"
#include "checkpoint/checkpoint_reader.h"
#include "runtime/mesh/mesh.h"
#include "runtime/trainer/trainer.h"

namespace quintet {

/// Blocks of the trainer's arrays, and the copies that some of them point to.
struct StateSlices {
  std::vector<TensorSlice> slices;
  std::vector<MeshAxes> mesh_axes;  // of each slice: those that shard its tensor
  std::vector<Device*> devices;     // of each slice: in whose memory its data lies
  std::vector<HostArray> copies;
};
/// Whether an array is saved in bfloat16, by the `dtype` of checkpoints: "float32" or "bfloat16".
bool is_saved_rounded(const std::string& name, const std::string& dtype);
/// target/... as `dtype`, if they are in ordinary memory, state/param_states/... as they are, state/step.
StateSlices to_slices(Trainer& trainer, const std::string& dtype);
/// Leaves those that this rank writes: of a block that several ranks hold one writes it, in turn. Which
/// one follows from the mesh; nothing is sent.
void drop_replicas(StateSlices& state, const Mesh& mesh);

/// Of the trainer's arrays; of a device's one at a time is copied.
NotFinite count_not_finite(Trainer& trainer);
/// Of parameters that are not trained, but those in 8 bits, which were finite when they were rounded.
NotFinite count_not_finite_frozen(const Parameters& parameters);

/// Names and global shapes of the arrays, state/step among them.
ArrayShapes shapes_of(Trainer& trainer);

/// What a checkpoint may have otherwise than the trainer.
struct AllowedDifferences {
  bool missing = false;       // fallback_to_scratch: such an array keeps its initial value
  bool extra = false;         // not strict: it is not read
  bool no_optimizer = false;  // parameters alone: the optimizer begins anew
  size_t shown = SIZE_MAX;    // of those that are not allowed, in the error
  std::string advice = {};    // the error's last line
};
struct Differences {
  std::vector<std::string> missing, extra;
};
/// Reads every array of the trainer. Throws kData listing all that are missing, extra or of another shape
/// and not allowed to be; gives those that are.
Differences load_arrays(const CheckpointReader& checkpoint, Trainer& trainer,
                        const AllowedDifferences& allowed = {});

}  // namespace quintet
