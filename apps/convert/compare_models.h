#pragma once
// Whether a model and what it was converted to compute the same.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "runtime/gin/command_line.h"

namespace quintet {

/// {"largest_difference": .., "largest_logit": ..} of the logits of both on one batch of random ids. `source` and `gin_line` as open_model_source's, `written`: a directory. Throws
/// ExitCode::kData if they differ by more than rounding and the weights are not `rounded`, or if a logit
/// is not finite.
nlohmann::ordered_json compare_models(const std::filesystem::path& source,
                                      const gin::CommandLine& gin_line,
                                      const std::filesystem::path& written, bool rounded);

}  // namespace quintet
