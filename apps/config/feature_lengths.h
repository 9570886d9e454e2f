#pragma once
// Lengths of a task's features, as a flag or gin files give them.

#include <string>
#include <vector>

#include "data/examples/preprocessor.h"
#include "runtime/gin/config.h"

namespace quintet {

/// {"inputs=512", "targets=114"} of --task_feature_lengths. Throws a usage error naming what is not
/// name=length.
data::Lengths parse_lengths(const std::vector<std::string>& items);

/// %TASK_FEATURE_LENGTHS of the gin files; none if there is no such macro.
data::Lengths configured_lengths(gin::Config& config);

}  // namespace quintet
