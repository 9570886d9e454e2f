#pragma once
// Training as gin files say, from the command line to the exit code: what `quintet train` runs.

#include <string>

#include "apps/flags/compute_flags.h"
#include "apps/flags/launch_flags.h"
#include "apps/flags/microbatch_flags.h"
#include "apps/input/data_service.h"
#include "apps/process/ranks.h"
#include "runtime/gin/command_line.h"

namespace quintet {

/// What `quintet train` may be told beside gin bindings.
struct TrainingFlags {
  std::string model_dir;
  ComputeFlags compute;
  RankFlags ranks;
  DataServiceFlags data;
  LaunchFlags launch;
  MicrobatchFlags microbatches;
  bool compute_started = false;  // compute.start() was called
  bool profile = false, strict_data = false, no_step_graph = false, optimizer_offload = false;
};

/// All ranks call it; those that serve data do so until training ends. `arguments`: of the command,
/// which all ranks must have alike. Returns an exit code, 75 if asked to stop.
int run_training(TrainingFlags flags, gin::CommandLine command_line, const std::string& arguments);

}  // namespace quintet
