#pragma once
// What is in a model directory, a checkpoint or a safetensors file, and whether it is still what was
// written: what `quintet inspect` runs.

#include <string>

#include "apps/flags/result_format.h"

namespace quintet {

/// What `quintet inspect` may be told.
struct InspectOptions {
  std::string path, second;    // second: is compared with the first
  std::string tensor, output;  // one tensor, and the .npy file it goes to
  ResultFormat format{"text"};
  bool verify = true, stats = false;
};

/// Prints the checkpoints of a model directory, or the tensors of a checkpoint or file. Returns an exit
/// code: 3 if a checkpoint of the directory is damaged. Throws kData for a damaged checkpoint or file, a
/// usage error if there is none.
int inspect(const InspectOptions& options);

}  // namespace quintet
