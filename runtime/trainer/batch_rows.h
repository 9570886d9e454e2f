#pragma once
// A batch over the ranks of a mesh: every rank has the rows of its data shard and no others, those of
// the first microbatch, then those of the second, and so on. Each microbatch is sharded alone, so that all
// ranks have as much to do.
//
//   16 rows, 2 microbatches, 2 data shards: shard 0 has rows 0-3 and 8-11, shard 1 has 4-7 and 12-15

#include <span>

#include "runtime/base/host_array.h"
#include "runtime/mesh/layout.h"

namespace quintet {

/// Which of the parts of every microbatch this thread's rank has.
struct BatchPart {
  int64_t index = 0, count = 1;
  MeshAxes axes;  // that the rules shard batches over
};
BatchPart batch_part();

/// This rank's rows of a batch that every rank has. Throws a usage error where they do not divide.
HostArrays local_rows(const HostArrays& batch, int64_t microbatches = 1);

/// Adds up what the ranks counted in their rows; all that share a batch call it.
void sum_over_batch(std::span<double> counts);

/// The feature of a batch that says what a loss counts in the rows of all ranks, float64
/// [microbatches, numbers]; where a batch lacks it, the loss asks the other ranks itself.
inline constexpr const char* kStepCounts = "step_counts";

/// What a rank has to say before a step.
struct StepFlags {
  bool stop = false;    // it was asked to stop
  bool ended = false;   // it has no batch
  bool ruined = false;  // an update before left numbers that are not finite
};
/// What any rank says, in one collective that also makes the counts of this rank's rows those of all
/// rows. All ranks of the mesh call it, with as many counts.
StepFlags agree_on_step(const StepFlags& own, std::span<double> counts);

}  // namespace quintet
