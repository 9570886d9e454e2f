#include "apps/report/run_history.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "runtime/base/check.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"
#include "runtime/metrics/event_file.h"

namespace quintet {
namespace {

using nlohmann::ordered_json;

struct Happened {
  int64_t step;
  std::string what;
  std::optional<int64_t> time = {};  // of the system clock
  bool mark = true;
};

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "12" of checkpoint_12 and the like, if it begins and ends so.
std::optional<int64_t> step_of_name(std::string_view name, std::string_view begin,
                                    std::string_view end) {
  if (!name.starts_with(begin) || !name.ends_with(end) || name.size() < begin.size() + end.size())
    return std::nullopt;
  name.remove_prefix(begin.size());
  name.remove_suffix(end.size());
  return whole_number(name);
}

/// The step at which a start of a run was, by the first event of its file: where T5X wrote it, that of the first record.
int64_t step_before(const Event& first) {
  return first.session_start ? std::max<int64_t>(0, first.step - 1) : first.step;
}

/// Every start of a run has an event file of its own: events.out.tfevents.<time>.<host>.<process>.<n>.v2.
void add_starts(const std::filesystem::path& model_dir, std::vector<Happened>& all) {
  bool is_first = true;
  for (const auto& file : event_files(model_dir / "train")) {
    const std::optional<Event> first = first_step_event(file);
    const std::string name = file.filename().string().substr(sizeof("events.out.tfevents.") - 1);
    const size_t dot = name.find('.');
    if (!first || dot == std::string::npos) continue;
    static const std::regex kOfTensorFlow2(R"(\d+\.(.+)\.\d+\.\d+\.v2)");
    std::smatch parts;
    const std::string host =
        " on " +
        (std::regex_match(name, parts, kOfTensorFlow2) ? parts[1].str() : name.substr(dot + 1));
    const int64_t done = step_before(*first);
    all.push_back({done,
                   is_first ? fmt::format("started{}", host)
                            : fmt::format("started again{}, from step {}", host, done),
                   whole_number(name.substr(0, dot)), !is_first});
    is_first = false;
  }
}

void add_skipped(const SeriesByName& series, std::vector<Happened>& all) {
  const auto found = series.find({"train", "skipped_updates"});
  if (found == series.end()) return;
  double before = 0;
  for (size_t i = 0; i < found->second.values.size(); ++i) {
    const double now = found->second.values[i];
    if (now > before)
      all.push_back(
          {found->second.steps[i], fmt::format("{:.0f} update{} skipped: a gradient was not finite",
                                               now - before, now - before == 1 ? "" : "s")});
    before = now;
  }
}

void add_not_finite(const SeriesByName& series, std::vector<Happened>& all) {
  for (const auto& [name, values] : series)
    if (!values.not_finite.empty())
      all.push_back(
          {values.not_finite.front(),
           fmt::format("{} of {} not finite{}", name.second, name.first,
                       values.not_finite.size() > 1
                           ? fmt::format(", {} times up to step {}", values.not_finite.size(),
                                         values.not_finite.back())
                           : "")});
}

/// What NonFiniteReport and a restart over damaged checkpoints left.
void add_files(const std::filesystem::path& model_dir, std::vector<Happened>& all,
               std::vector<std::string>& warnings) {
  for (const std::string& name : names_in(model_dir)) {
    const auto damaged = step_of_name(name.substr(0, name.find('.')), "damaged-checkpoint_", "");
    if (damaged)
      all.push_back({*damaged, "the checkpoint of this step was damaged and set aside: " + name});
    const auto bad = step_of_name(name, "not_finite_", ".json");
    if (!bad) continue;
    try {
      const Json steps = Json::read(model_dir / name)["steps"];
      const std::string first =
          steps.size() > 0 ? fmt::format(", first in {}", steps[0]["tensor"].as_string()) : "";
      all.push_back({*bad, fmt::format("stopped: numbers of {} steps not finite{}; {} has their "
                                       "batches",
                                       steps.size(), first, name)});
    } catch (const Error& error) {
      warnings.push_back(fmt::format("{}; left out", error.what()));
    }
  }
}

constexpr size_t kSampleRows = 8, kSampleSteps = 12, kTextBytes = 600;

std::string cut(std::string text) {
  if (text.size() <= kTextBytes) return text;
  size_t end = kTextBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::string shown(const ordered_json& value) {
  return cut(value.is_string()
                 ? value.get<std::string>()
                 : value.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

/// The text that the model was given: as it was before tokenization, if the file has it.
std::string input_text(const ordered_json& input) {
  if (!input.is_object()) return shown(input);
  for (const char* name : {"inputs_pretokenized", "inputs", "input"})
    if (const auto found = input.find(name); found != input.end() && found->is_string())
      return shown(*found);
  return shown(input);
}

ordered_json row_of(const Json& line) {
  const ordered_json& raw = line.raw();
  const auto text = [&](const char* name, const char* other) {
    return raw.contains(name) ? shown(raw[name]) : raw.contains(other) ? shown(raw[other]) : "";
  };
  return {raw.contains("input") ? input_text(raw["input"]) : "", text("target", "targets"),
          text("prediction", "output")};
}

/// The first rows of a file, of which no more is read than they take.
ordered_json first_rows(const std::filesystem::path& file, std::vector<std::string>& warnings) {
  ordered_json rows = ordered_json::array();
  std::string line;
  std::ifstream in(file);
  while (rows.size() < kSampleRows && std::getline(in, line)) {
    if (line.empty()) continue;
    try {
      rows.push_back(row_of(Json::parse(line, file.string())));
    } catch (const Error& error) {
      warnings.push_back(fmt::format("{}; left out", error.what()));
      break;
    }
  }
  return rows;
}

/// null: not known, or no time that a calendar has (a file's name says it).
ordered_json time_of(const Happened& one) {
  constexpr int64_t kLast = 253'402'300'799;  // of the year 9999
  if (!one.time || *one.time < 0 || *one.time > kLast) return {};
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(*one.time));
}

}  // namespace

std::optional<int64_t> first_step_of(const std::filesystem::path& model_dir) {
  for (const auto& file : event_files(model_dir / "train"))
    if (const std::optional<Event> first = first_step_event(file); first && first->session_start)
      return step_before(*first);
  return std::nullopt;
}

ordered_json history_of(const std::filesystem::path& model_dir, const SeriesByName& series,
                        std::vector<std::string>& warnings) {
  std::vector<Happened> all;
  add_starts(model_dir, all);
  add_skipped(series, all);
  add_not_finite(series, all);
  add_files(model_dir, all, warnings);
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  ordered_json out = ordered_json::array();
  for (const Happened& one : all)
    out.push_back(
        {{"step", one.step}, {"time", time_of(one)}, {"what", one.what}, {"mark", one.mark}});
  return out;
}

ordered_json samples_of(const std::filesystem::path& model_dir,
                        std::vector<std::string>& warnings) {
  const auto folder = model_dir / "inference_eval";
  ordered_json out = ordered_json::array();
  if (!std::filesystem::is_directory(folder)) return out;
  std::map<std::string, std::map<int64_t, std::string>> files;  // task -> step -> name
  for (const std::string& name : names_in(folder)) {
    const size_t dash = name.rfind('-');
    if (dash == std::string::npos) continue;
    if (const auto step = step_of_name(name, name.substr(0, dash + 1), ".jsonl"))
      files[name.substr(0, dash)][*step] = name;
  }
  for (const auto& [task, by_step] : files) {
    const size_t count = by_step.size(), parts = std::min(count, kSampleSteps);
    size_t i = 0, taken = 0;
    for (const auto& [step, name] : by_step) {
      // Evenly, from the first to the last.
      if (i++ != (parts == 1 ? 0 : taken * (count - 1) / (parts - 1))) continue;
      ++taken;
      const ordered_json rows = first_rows(folder / name, warnings);
      if (!rows.empty()) out.push_back({{"task", task}, {"step", step}, {"rows", rows}});
    }
  }
  return out;
}

}  // namespace quintet
