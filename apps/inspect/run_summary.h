#pragma once
// What a model directory, of a run of ours or Hugging Face's, holds, in a few words.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace quintet {

/// By name, in the order in which they are told: "architecture", "parameters", "vocabulary" and, of a run, "task"
/// and "last_metrics" (of each of its logs the last line). Empty if there is no configuration; a "problem" if it
/// cannot be read, since what lies beside it may be looked at all the same.
nlohmann::ordered_json summary_of(const std::filesystem::path& model_dir);

}  // namespace quintet
