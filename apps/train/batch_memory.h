#pragma once
// Refuses sizes that no machine like this one can train with, by arithmetic alone, before anything
// is read or allocated.
//
//   check_batches_fit(config, ranks.size());
//
// A lower bound: what passes may still need more memory than there is.

#include "apps/config/train_config.h"

namespace quintet {

/// Throws ExitCode::kEnvironment naming the data set, its batch_size and lengths if the embedded
/// tokens of one batch (of one microbatch, in training), divided among the ranks, are more bytes
/// than this machine has memory and swap. Not for a GPU, whose memory this does not know.
void check_batches_fit(const TrainConfig& config, int ranks);

}  // namespace quintet
