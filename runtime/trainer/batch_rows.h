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

}  // namespace quintet
