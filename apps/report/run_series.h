#pragma once
// The metrics of a run by step, from its metrics.jsonl or, of a run that has none, as T5X's, from its TensorBoard events.
//
//   std::vector<std::string> warnings;
//   for (const Series& series : read_series(model_dir, warnings)) page["series"].push_back(thinned(series, 1000));

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace quintet {

/// A metric of one place of a run ("train", "training_eval/TASK"), by ascending step.
struct Series {
  std::vector<int64_t> steps;       // of `values`
  std::vector<double> values;       // finite
  std::vector<int64_t> not_finite;  // steps whose value was NaN or infinite
};
using SeriesByName = std::map<std::pair<std::string, std::string>, Series>;  // {place, metric}

/// TensorBoard's event files in a folder and those below it, by folder and time of their beginning.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder);

/// Everything that is there. What a log holds beside whole records (a line that was cut off, a damaged one) is left
/// out with a warning; throws kData if the folder has no log, or none of its lines is a record.
SeriesByName read_series(const std::filesystem::path& model_dir,
                         std::vector<std::string>& warnings);

/// {"n", "last", "least", "most": [step, value], "steps", "mean", and "low", "high" if there are more values than `points`}: each
/// point then stands for equally many values one after the other, and no extreme is lost.
nlohmann::ordered_json thinned(const Series& series, size_t points);

}  // namespace quintet
