#pragma once
// What a training run writes beside metrics and checkpoints: config.gin, vocabularies, model-info.txt.

#include "apps/train/train_run.h"

namespace quintet {

/// Writes them, by the first rank, and opens `run.summaries`. All ranks call it, after restore().
void write_run_files(TrainRun& run);

}  // namespace quintet
