#include "apps/inspect/inspection.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/inspect/comparison.h"
#include "apps/inspect/one_tensor.h"
#include "apps/inspect/run_summary.h"
#include "apps/inspect/tensor_values.h"
#include "checkpoint/bundle/bundle.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/commit.h"
#include "checkpoint/finite.h"
#include "checkpoint/manifest.h"
#include "checkpoint/open/formats.h"
#include "checkpoint/open/open_checkpoint.h"
#include "checkpoint/open/recognize.h"
#include "checkpoint/reader.h"
#include "checkpoint/region_reader.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

/// One line of the listing.
struct Row {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
};

struct Listing {
  nlohmann::ordered_json head;  // path, step and the like
  std::vector<Row> rows;
  std::string state_json;
  std::optional<NotFinite> not_finite;                // known where every byte was read
  std::map<std::string, Statistics> statistics = {};  // with --stats
};

/// Rows and, if they are asked for, statistics, which look at every number.
void list_tensors(const CheckpointReader& reader, bool statistics, Listing& listing) {
  for (const auto& [name, tensor] : reader.tensors())
    listing.rows.push_back({name, tensor.dtype, tensor.shape});
  if (!statistics) return;
  listing.not_finite.emplace();
  for (const Row& row : listing.rows) {
    const Statistics& found = listing.statistics[row.name] = statistics_of(reader, row.name);
    if (found.not_finite > 0) (*listing.not_finite)[row.name] = found.not_finite;
  }
}

Listing list_checkpoint(const InspectOptions& options) {
  Manifest manifest;
  std::optional<NotFinite> not_finite;
  reading(options.path, [&] {
    manifest = read_manifest(options.path);
    check_files(options.path, manifest);
    if (options.verify) not_finite = verify_files(options.path, manifest);
  });
  Listing listing;
  listing.not_finite = std::move(not_finite);
  int64_t file_bytes = 0;
  for (const ManifestFile& file : manifest.files) file_bytes += file.bytes;
  listing.head = {{"path", options.path},         {"kind", "checkpoint"},
                  {"step", manifest.step},        {"run_id", manifest.run_id},
                  {"format", kCheckpointVersion}, {"hosts", manifest.hosts},
                  {"file_bytes", file_bytes}};
  listing.state_json = manifest.state_json;
  reading(options.path,
          [&] { list_tensors(NativeCheckpointReader(options.path), options.stats, listing); });
  return listing;
}

Listing list_safetensors(const InspectOptions& options) {
  const auto reader = open_for_inspection(options.path);
  Listing listing;
  listing.head = {
      {"path", options.path}, {"kind", "safetensors"}, {"file_bytes", reader->file_bytes()}};
  listing.state_json = reader->state_json();
  listing.not_finite = reader->verify();
  list_tensors(*reader, options.stats, listing);
  return listing;
}

/// Compares with all checksums and counts what is not finite, or leaves that to who reads every number next.
std::optional<NotFinite> verified(const CheckpointReader& reader, bool is_read_next) {
  reader.verify_before_reading();
  if (is_read_next) return std::nullopt;
  return reader.reading_verifies() ? reader.verify() : count_not_finite(reader);
}

/// Of another program; tensors by our names, as they are read for generation and training.
Listing list_foreign(const InspectOptions& options) {
  const auto reader = open_checkpoint(options.path);
  Listing listing;
  if (options.verify) listing.not_finite = verified(*reader, options.stats);
  listing.head = {{"path", options.path}, {"kind", format_at(options.path)->name}};
  if (reader->step() != 0) listing.head["step"] = reader->step();
  for (const auto& [what, text] : reader->details()) listing.head[what] = text;
  listing.head["file_bytes"] = reader->file_bytes();
  const nlohmann::ordered_json summary = summary_of(options.path);
  for (const auto& [key, value] : summary.items())  // config.json's architecture is a class
    listing.head[listing.head.contains(key) ? "layers" : key] = value;
  list_tensors(*reader, options.stats, listing);
  return listing;
}

int64_t elements_of(const Row& row) {
  int64_t elements = 1;
  for (const int64_t size : row.shape) elements *= size;
  return elements;
}

std::string text_of(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print_json(const InspectOptions& options, const Listing& listing) {
  nlohmann::ordered_json json = listing.head;
  json["verified"] = options.verify;
  if (listing.not_finite) json["not_finite"] = *listing.not_finite;
  for (const Row& row : listing.rows) {
    nlohmann::ordered_json item = {{"dtype", name_of(row.dtype)}, {"shape", row.shape}};
    if (options.stats) {
      const Statistics& stats = listing.statistics.at(row.name);
      if (stats.count > stats.not_finite)
        item.update({{"min", stats.min}, {"max", stats.max}, {"rms", stats.rms()}});
      item["not_finite"] = stats.not_finite;
    }
    append_member(json["tensors"], row.name, std::move(item));
  }
  if (!listing.state_json.empty())
    json["state"] = Json::parse(listing.state_json, options.path).raw();
  fmt::print("{}\n", json.dump());
}

void print_text(const InspectOptions& options, const Listing& listing) {
  for (const auto& [key, value] : listing.head.items())
    fmt::print("{:<12} {}\n", key, text_of(value));
  const std::string kind = listing.head["kind"];
  const bool has_checksums =
      kind == "checkpoint" || kind == "safetensors" || bundle::is_at(options.path);
  fmt::print("{:<12} {}\n", "verified",
             !options.verify ? "sizes only"
             : has_checksums ? "every byte"
                             : "sizes, and checksums where the files have them");
  fmt::print("{:<12} {}\n", "finite",
             !listing.not_finite           ? "not looked at"
             : listing.not_finite->empty() ? "every number"
                                           : "NO: " + describe(*listing.not_finite));
  if (!listing.state_json.empty()) fmt::print("{:<12} {}\n", "state", listing.state_json);
  size_t width = 6;
  int64_t elements = 0;
  for (const Row& row : listing.rows) {
    width = std::max(width, row.name.size());
    elements += elements_of(row);
  }
  fmt::print("\n{:<{}}  {:<9} {:<20}{}\n", "tensor", width, "dtype", "shape",
             options.stats ? "          min           max           rms  not finite" : "");
  for (const Row& row : listing.rows) {
    fmt::print("{:<{}}  {:<9} {:<20}", row.name, width, name_of(row.dtype),
               fmt::format("[{}]", fmt::join(row.shape, ", ")));
    if (options.stats) {
      const Statistics& stats = listing.statistics.at(row.name);
      fmt::print("{:13.6g} {:13.6g} {:13.6g} {:11}", stats.min, stats.max, stats.rms(),
                 stats.not_finite);
    }
    fmt::print("\n");
  }
  fmt::print("{} tensors, {} elements\n", listing.rows.size(), elements);
}

/// Elements of the parameters of a checkpoint.
int64_t parameters_of(const std::filesystem::path& folder) {
  int64_t parameters = 0;
  const auto reader = open_checkpoint(folder);
  for (const auto& [name, tensor] : reader->tensors())
    if (name.starts_with(kParameterPrefix))
      parameters += elements_of({name, tensor.dtype, tensor.shape});
  return parameters;
}

/// Of a model directory, before its checkpoints; without a configuration what the newest of them says.
void print_summary(const InspectOptions& options) {
  const std::filesystem::path newest = find_checkpoint(options.path);
  nlohmann::ordered_json summary = summary_of(options.path);
  if (summary.empty()) {
    summary["architecture"] = "not known: there is no config.gin";
    try {
      summary["parameters"] = parameters_of(newest);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData) throw;  // else it is told below
    }
  }
  if (const auto* format = format_at(newest)) summary["format"] = format->name;
  if (options.format.is_json()) {
    nlohmann::ordered_json json = {{"path", options.path}, {"kind", "model directory"}};
    json.update(summary);
    fmt::print("{}\n", json.dump());
    return;
  }
  for (const auto& [key, value] : summary.items()) {
    if (key != "last_metrics") {
      fmt::print("{:<12} {}\n", key, text_of(value));
      continue;
    }
    for (const auto& [run, numbers] : value.items()) {
      std::vector<std::string> parts;
      for (const auto& [name, number] : numbers.items())
        if (name.find('/') == std::string::npos)  // not those of times, memory and batches
          parts.push_back(fmt::format("{} {:.6g}", name, number.get<double>()));
      fmt::print("{:<12} {}: {}\n", "last", run, fmt::join(parts, ", "));
    }
  }
  fmt::print("\n");
}

struct Checked {
  int64_t bytes = 0;
  std::string problem;                       // empty: whole
  std::optional<NotFinite> not_finite = {};  // absent: not looked at
  bool deleted = false;                      // while it was read
};

Checked check_checkpoint(const std::filesystem::path& folder, bool verify) {
  Checked result;
  try {
    if (format_at(folder) != nullptr && !is_native(folder)) {
      const auto reader = open_checkpoint(folder);
      result.bytes = reader->file_bytes();
      if (verify) result.not_finite = verified(*reader, false);
      return result;
    }
    const Manifest manifest = read_manifest(folder);
    for (const ManifestFile& file : manifest.files) result.bytes += file.bytes;
    check_files(folder, manifest);
    if (verify) result.not_finite = verify_files(folder, manifest);
  } catch (const Error& error) {
    result.deleted = !is_there(folder);
    if (!result.deleted && error.code() != ExitCode::kData) throw;
    result.problem = error.what();
  }
  return result;
}

/// Every step, whole or not; exit code 3 if one is not. One that a run deletes meanwhile is no
/// damage.
int list_model_dir(const InspectOptions& options) {
  int code = 0;
  print_summary(options);
  for (const int64_t step : list_checkpoints(options.path)) {
    const auto folder = checkpoint_path(options.path, step);
    const auto [bytes, problem, not_finite, deleted] = check_checkpoint(folder, options.verify);
    if (deleted) {
      if (options.format.is_json())
        fmt::print(
            "{}\n",
            nlohmann::ordered_json{{"path", folder.string()}, {"step", step}, {"deleted", true}}
                .dump());
      else
        fmt::print("{:<30} deleted meanwhile\n", folder.filename().string());
      continue;
    }
    if (!problem.empty()) code = static_cast<int>(ExitCode::kData);
    const bool pinned = is_there(folder / kPinnedName);
    if (options.format.is_json()) {
      nlohmann::ordered_json json = {{"path", folder.string()},
                                     {"step", step},
                                     {"file_bytes", bytes},
                                     {"pinned", pinned},
                                     {"whole", problem.empty()}};
      if (!problem.empty()) json["problem"] = problem;
      if (not_finite) json["not_finite"] = *not_finite;
      fmt::print("{}\n", json.dump());
    } else {
      std::string verdict = problem.empty() ? "whole" : "DAMAGED: " + problem;
      if (not_finite && !not_finite->empty()) verdict += ", NOT FINITE: " + describe(*not_finite);
      fmt::print("{:<30} {:>14} bytes  {}{}\n", folder.filename().string(), bytes, verdict,
                 pinned ? "  PINNED" : "");
    }
  }
  return code;
}

}  // namespace

int inspect(const InspectOptions& options) {
  QT_CHECK(options.second.empty() || (options.tensor.empty() && !options.stats),
           "--{}: is of one checkpoint, not of two", options.stats ? "stats" : "tensor");
  QT_CHECK(options.tensor.empty() || !options.stats, "--stats: is not of --tensor");
  QT_CHECK(options.output.empty() || !options.tensor.empty(), "--output={}: wants --tensor",
           options.output);
  if (!options.second.empty())
    return compare_checkpoints(options.path, options.second, options.format);
  if (!options.tensor.empty())
    return show_tensor(options.path, options.tensor, options.format, options.output);
  const bool is_known = format_at(options.path) != nullptr;
  QT_CHECK(is_known || is_there(options.path), "{}: there is no such file or folder", options.path);
  const bool is_lone_file = !is_known && is_safetensors(options.path);
  if (!is_lone_file && find_checkpoint(options.path) != options.path) {
    if (!options.stats) return list_model_dir(options);
    InspectOptions newest = options;
    newest.path = find_checkpoint(options.path).string();
    return inspect(newest);
  }
  const Listing listing = is_lone_file              ? list_safetensors(options)
                          : is_native(options.path) ? list_checkpoint(options)
                                                    : list_foreign(options);
  if (options.format.is_json())
    print_json(options, listing);
  else
    print_text(options, listing);
  return 0;
}

}  // namespace quintet
