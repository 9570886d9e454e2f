#pragma once
// Where a training run starts from: its own newest whole checkpoint, else another run's, else new
// parameters.

#include "apps/input/data_service.h"
#include "apps/train/train_run.h"

namespace quintet {

/// Makes the trainer, the batches and the checkpoint manager of `run`, and its state. All ranks call
/// it. Throws kData for a checkpoint that does not fit, usage errors for another seed or a step beyond
/// total_steps.
void restore(TrainRun& run, const BatchSourceFn& batch_source);

}  // namespace quintet
