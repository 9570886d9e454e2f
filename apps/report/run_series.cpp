#include "apps/report/run_series.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"
#include "runtime/metrics/event_file.h"

namespace quintet {
namespace {

/// The last value of a step counts.
void add(Series& series, int64_t step, double value) {
  if (!series.not_finite.empty() && series.not_finite.back() >= step)
    std::erase(series.not_finite, step);
  const auto place = std::lower_bound(series.steps.begin(), series.steps.end(), step);
  const auto i = place - series.steps.begin();
  const bool is_again = place != series.steps.end() && *place == step;
  if (!std::isfinite(value)) {
    series.not_finite.push_back(step);
    if (is_again) series.steps.erase(place), series.values.erase(series.values.begin() + i);
  } else if (is_again) {
    series.values[static_cast<size_t>(i)] = value;
  } else {
    series.steps.insert(place, step);
    series.values.insert(series.values.begin() + i, value);
  }
}

/// What was written from a step on, and is written again by the run that went on from before it; its log has
/// been cut there already.
void cut(Series& series, int64_t step) {
  const auto again = std::lower_bound(series.steps.begin(), series.steps.end(), step);
  series.values.resize(static_cast<size_t>(again - series.steps.begin()));
  series.steps.erase(again, series.steps.end());
  std::erase_if(series.not_finite, [&](int64_t at) { return at >= step; });
}

void add_line(const Json& line, SeriesByName& all) {
  const int64_t step = line["step"].as_int();
  const std::string place = line.has("run") ? line["run"].as_string() : "";
  for (const auto& [name, value] : line.raw().items()) {
    if (name == "step" || name == "run") continue;
    if (value.is_number() || value.is_string())
      add(all[{place, name}], step, value.is_number() ? value.get<double>() : std::nan(""));
  }
}

void read_log(const std::filesystem::path& file, SeriesByName& all,
              std::vector<std::string>& warnings) {
  const std::string text = read_file(file);
  std::string problem;
  int64_t number = 0, bad = 0;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    ++number;
    if (end == at) continue;
    try {
      if (end == text.size()) fail(ExitCode::kData, "ends within its last line");
      add_line(Json::parse(std::string_view(text).substr(at, end - at), "a record"), all);
    } catch (const Error& error) {
      if (bad++ == 0) problem = fmt::format("line {}: {}", number, error.what());
    }
  }
  if (bad == 0) return;
  QT_CHECK_AS(ExitCode::kData, !all.empty(), "{}: {}; no line of it is a record of metrics",
              file.string(), problem);
  warnings.push_back(fmt::format("{}: {}; left out{}", file.string(), problem,
                                 bad > 1 ? fmt::format(", {} lines in all", bad) : ""));
}

void read_events(const std::filesystem::path& file, const std::string& place, SeriesByName& all,
                 std::vector<std::string>& warnings) {
  try {
    for_events(file, [&](const Event& event) {
      if (!event.is_scalar) return;
      Series& series = all[{place, event.tag}];
      if (!series.steps.empty() && event.step < series.steps.back()) cut(series, event.step);
      add(series, event.step, event.scalar);
    });
  } catch (const Error& error) {
    warnings.push_back(fmt::format("{}; what follows there is left out", error.what()));
  }
}

/// Of the values [first, last).
void add_point(const Series& series, size_t first, size_t last, nlohmann::ordered_json& out) {
  const auto begin = series.values.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = series.values.begin() + static_cast<std::ptrdiff_t>(last);
  const auto [low, high] = std::minmax_element(begin, end);
  out["steps"].push_back(series.steps[(first + last - 1) / 2]);
  out["mean"].push_back(std::accumulate(begin, end, 0.0) / static_cast<double>(last - first));
  if (out.contains("low")) {
    out["low"].push_back(*low);
    out["high"].push_back(*high);
  }
}

}  // namespace

std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(folder)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents.") &&
        entry.is_regular_file())
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

SeriesByName read_series(const std::filesystem::path& model_dir,
                         std::vector<std::string>& warnings) {
  SeriesByName all;
  const auto log = model_dir / "metrics.jsonl";
  if (is_there(log)) {
    read_log(log, all, warnings);
    return all;
  }
  std::vector<std::filesystem::path> files;
  for (const char* place : {"train", "training_eval", "inference_eval"})
    for (auto& file : event_files(model_dir / place)) files.push_back(std::move(file));
  QT_CHECK_AS(ExitCode::kData, !files.empty(),
              "{}: has neither metrics.jsonl nor TensorBoard's events in train, training_eval or "
              "inference_eval: not the directory of a training run",
              model_dir.string());
  for (const auto& file : files)
    read_events(file, file.parent_path().lexically_relative(model_dir).generic_string(), all,
                warnings);
  return all;
}

nlohmann::ordered_json thinned(const Series& series, size_t points) {
  const size_t count = series.values.size();
  const auto [low, high] = std::minmax_element(series.values.begin(), series.values.end());
  const auto at = [&](size_t i) {
    return nlohmann::ordered_json::array({series.steps[i], series.values[i]});
  };
  const auto begin = series.values.begin();
  nlohmann::ordered_json out = {{"n", count},
                                {"last", at(count - 1)},
                                {"least", at(static_cast<size_t>(low - begin))},
                                {"most", at(static_cast<size_t>(high - begin))},
                                {"steps", nlohmann::ordered_json::array()},
                                {"mean", nlohmann::ordered_json::array()}};
  if (count > points) out["low"] = out["high"] = nlohmann::ordered_json::array();
  const size_t parts = std::min(count, points);
  for (size_t i = 0; i < parts; ++i)
    add_point(series, i * count / parts, (i + 1) * count / parts, out);
  return out;
}

}  // namespace quintet
