#pragma once
// What happened to a run beside its metrics: starts, skipped updates, damaged checkpoints; what it predicted.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/report/run_series.h"

namespace quintet {

/// The step from which the first start of the run went on, 0 without a checkpoint; nothing if its log does not say.
std::optional<int64_t> first_step_of(const std::filesystem::path& model_dir);

/// By step: [{"step", "time": "2026-11-26 14:03:05" or null, "what", "mark": whether charts show it}].
nlohmann::ordered_json history_of(const std::filesystem::path& model_dir,
                                  const SeriesByName& series, std::vector<std::string>& warnings);

/// From the files of inference_eval: [{"task", "step", "rows": [[input, target, prediction]]}]: the first eight examples of
/// at most twelve steps of each task, the first and last among them. Long texts are cut.
nlohmann::ordered_json samples_of(const std::filesystem::path& model_dir,
                                  std::vector<std::string>& warnings);

}  // namespace quintet
