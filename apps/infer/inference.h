#pragma once
// Predictions or scores of a data set, written as JSON lines: t5x/infer.py's infer.
//
//   return run_inference(config, ranks, provider_of);       // 0, or 75: stopped, run again
//
// For each task, under output_dir:
//   tmp-<task>-SSSSS-of-NNNNN/                       while it runs
//     <task>-<mode>.jsonl-SSSSS-of-NNNNN-chunkCCCCC  of checkpoint_period batches, then
//     ...COMPLETED input.ckpt                                     where the next chunk begins
//   <task>-<mode>.jsonl-SSSSS-of-NNNNN               all chunks in order, then ...COMPLETED
// A run that was killed goes on after its last chunk and ends with the same bytes; so do more
// ranks, which take a chunk's batches by turns. With several checkpoints each has a folder
// checkpoint_<step>.

#include "apps/config/inference_config.h"
#include "apps/flags/result_format.h"
#include "apps/input/run_data.h"
#include "apps/process/ranks.h"

namespace quintet {

/// All ranks call it. The first prints an object, and a line, for every file of results.
int run_inference(const InferenceConfig& config, const Ranks& ranks, const ProviderOf& provider_of,
                  const ResultFormat& format);

}  // namespace quintet
