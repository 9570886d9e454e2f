#pragma once
// Metrics of a task over checkpoints: t5x/eval.py's evaluate, and `quintet eval`.

#include <filesystem>

#include "apps/config/evaluation_config.h"
#include "apps/flags/result_format.h"
#include "apps/input/run_data.h"
#include "apps/process/ranks.h"

namespace quintet {

/// Evaluates every checkpoint that `restore` means, in order of step, and prints an object {"step", "task", "examples",
/// metrics...} for each task; on stderr `samples` predictions a task beside the right answers. All ranks call it: they take
/// the batches by turns, the first writes what one rank alone would. Returns an exit code, 75 if a rank was asked to stop.
int run_evaluation(EvaluationConfig config, const Ranks& ranks, const ProviderOf& provider_of,
                   int64_t samples, const ResultFormat& format);

}  // namespace quintet
