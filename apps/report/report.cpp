#include "apps/report/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/config/gin_session.h"
#include "apps/config/show/parsed_config.h"
#include "apps/inspect/run_summary.h"
#include "apps/page/page.h"
#include "apps/process/version.h"
#include "apps/report/run_history.h"
#include "apps/report/run_series.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/files/read_file.h"
#include "runtime/base/process/messages.h"
#include "runtime/gin/resolved.h"

namespace quintet {
namespace {

using nlohmann::ordered_json;
using Path = std::filesystem::path;

constexpr size_t kPoints = 400'000, kMostPoints = 1000, kFewestPoints = 60;

/// The last parts of the paths, as many as tell them apart. Throws a usage error for the same directory twice.
std::vector<std::string> names_of(const std::vector<Path>& paths) {
  std::set<Path> all;
  for (const Path& path : paths)
    QT_CHECK(all.insert(path).second, "quintet report: {} is named twice", path.string());
  std::vector<std::string> names;
  size_t parts = 0;
  do {
    ++parts;
    names.clear();
    for (const Path& path : paths) {
      const std::vector<Path> split(path.begin(), path.end());
      Path name;
      for (size_t i = split.size() - std::min(parts, split.size()); i < split.size(); ++i)
        name /= split[i];
      names.push_back(name.string());
    }
  } while (std::set(names.begin(), names.end()).size() < names.size());
  return names;
}

/// Of the directory itself, whatever links lead there.
Path real_folder(const std::string& run) {
  std::error_code error;
  const Path path = std::filesystem::canonical(run, error);
  QT_CHECK_AS(ExitCode::kData, !error, "{}: {}", run, error.message());
  QT_CHECK_AS(ExitCode::kData, std::filesystem::is_directory(path),
              "{}: not the directory of a training run", run);
  return path;
}

/// [[name, text or number]]: of the run's directory and configuration.
ordered_json facts_of(const Path& model_dir, const SeriesByName& series) {
  ordered_json facts =
      ordered_json::array({ordered_json::array({"directory", model_dir.string()})});
  const ordered_json summary = summary_of(model_dir);
  for (const char* name : {"task", "architecture", "parameters", "vocabulary"})
    if (summary.contains(name) && !summary[name].is_null())
      facts.push_back(
          {name, summary[name].is_object() ? ordered_json(summary[name].dump()) : summary[name]});
  int64_t last = -1;
  for (const auto& [name, values] : series)
    if (!values.steps.empty()) last = std::max(last, values.steps.back());
  if (last >= 0) facts.push_back({"last step", last});
  return facts;
}

/// [[task, examples]] of "mixture/TASK", which is the mean of the steps since the record before, or since the run's first
/// step `start`; where that is not known, since as many steps before the first record as there are to the second.
ordered_json mixture_of(const SeriesByName& all, std::optional<int64_t> start) {
  constexpr std::string_view kPrefix = "mixture/";
  ordered_json out = ordered_json::array();
  for (const auto& [name, series] : all) {
    if (name.first != "train" || !name.second.starts_with(kPrefix) || series.steps.empty())
      continue;
    const std::vector<int64_t>& steps = series.steps;
    int64_t before = std::max<int64_t>(0, steps.size() > 1 ? 2 * steps[0] - steps[1] : 0);
    if (start && *start <= steps[0]) before = *start;
    double examples = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      examples += series.values[i] * static_cast<double>(steps[i] - before);
      before = steps[i];
    }
    out.push_back({name.second.substr(kPrefix.size()), std::round(examples)});
  }
  return out;
}

ordered_json series_of(const SeriesByName& all, size_t points) {
  ordered_json out = ordered_json::array();
  for (const auto& [name, series] : all) {
    if (series.values.empty()) continue;
    ordered_json one = {{"place", name.first}, {"name", name.second}};
    one.update(thinned(series, points));
    out.push_back(std::move(one));
  }
  return out;
}

/// The configuration of a run; without one, or with one that cannot be read, nothing.
gin::NamedValues bound_values_of(const gin::Registry& registry, const Path& model_dir,
                                 std::vector<std::string>& warnings) {
  const Path file = model_dir / "config.gin";
  if (!is_there(file)) return {};
  try {
    return bound_values(*parsed_config(registry, {{file.string()}, {}, {}}));
  } catch (const Error& error) {
    warnings.push_back(fmt::format("{}; the configuration is left out", error.what()));
    return {};
  }
}

/// [[name, value of the first run or null, ...]] where they differ.
ordered_json differences(const std::vector<Path>& runs, std::vector<std::string>& warnings) {
  gin::Registry registry;
  register_everything(registry);
  std::vector<gin::NamedValues> configs;
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const Path& run : runs) {
    configs.push_back(bound_values_of(registry, run, warnings));
    for (const auto& [name, value] : configs.back().items())
      if (known.insert(name).second) names.push_back(name);
  }
  ordered_json rows = ordered_json::array();
  for (const std::string& name : names) {
    ordered_json row = ordered_json::array({name});
    std::set<std::string> distinct;
    for (const gin::NamedValues& config : configs) {
      const gin::Value* value = config.find(name);
      distinct.insert(value == nullptr ? "" : gin::to_json(*value));
      row.push_back(value == nullptr ? ordered_json() : ordered_json(value->repr()));
    }
    if (distinct.size() > 1) rows.push_back(std::move(row));
  }
  return rows;
}

ordered_json described(const Path& model_dir, const std::string& name, const SeriesByName& series,
                       size_t points, std::vector<std::string>& warnings) {
  if (series.empty()) warnings.push_back(fmt::format("{}: no metrics yet", model_dir.string()));
  const Path config = model_dir / "config.gin";
  return {{"name", name},
          {"facts", facts_of(model_dir, series)},
          {"series", series_of(series, points)},
          {"events", history_of(model_dir, series, warnings)},
          {"samples", samples_of(model_dir, warnings)},
          {"mixture", mixture_of(series, first_step_of(model_dir))},
          {"config", is_there(config) ? read_file(config, ExitCode::kData) : ""}};
}

std::string page_of(const ordered_json& data) {
  constexpr std::string_view kData = "/*data*/";
  std::string html(page::kReport);
  const std::string json = data.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  return html.replace(html.find(kData), kData.size(), page::escaped_json(json));
}

/// Somebody's file is not written over by a slip of the keyboard; an earlier report is.
void check_output(const Path& output) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(output, error)) return;
  const std::string start = read_file(output, ExitCode::kDisk).substr(0, 200);
  QT_CHECK(start.find("content=\"quintet report\"") != std::string::npos,
           "--output={}: is there and is no report of quintet; name another file", output.string());
}

}  // namespace

void write_report(const ReportOptions& options) {
  std::vector<Path> runs;
  for (const std::string& run : options.runs) runs.push_back(real_folder(run));
  const std::vector<std::string> names = names_of(runs);
  check_output(options.output);
  std::vector<std::string> warnings;
  std::vector<SeriesByName> series;
  size_t count = 0;
  for (const Path& run : runs) count += series.emplace_back(read_series(run, warnings)).size();
  const size_t points =
      std::clamp(kPoints / std::max<size_t>(1, count), kFewestPoints, kMostPoints);
  ordered_json data = {{"made", fmt::format("quintet {}", kVersion)},
                       {"runs", ordered_json::array()}};
  for (size_t i = 0; i < runs.size(); ++i)
    data["runs"].push_back(described(runs[i], names[i], series[i], points, warnings));
  data["config"] = runs.size() > 1 ? differences(runs, warnings) : ordered_json::array();
  data["warnings"] = warnings;
  for (const std::string& warning : warnings) write_warning(warning);
  const std::string html = page_of(data);
  atomic_write_file(options.output, html);
  options.format.print_object(ordered_json{
      {"output", options.output},
      {"runs", runs.size()},
      {"metrics", count},
      {"bytes", html.size()}}.dump());
  options.format.print_text(fmt::format("{}: {} run{}, {} metrics, {} kB\n", options.output,
                                        runs.size(), runs.size() == 1 ? "" : "s", count,
                                        (html.size() + 999) / 1000));
}

}  // namespace quintet
