#include "data/tasks/cache_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "data/examples/tf_example.h"
#include "data/sources/record_files.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOrigin = "quintet.json";
constexpr std::string_view kOldSuffix = "_plaintext", kNewSuffix = "_pretokenized";

/// A feature of info.json. Strings are not checked: some caches hold images.
FeatureSpec spec_of(const std::string& name, const Json& json) {
  FeatureSpec spec{.name = name, .dtype = json["dtype"].as_string()};
  if (spec.dtype == "string") spec.dtype = "bytes";
  for (const Json& size : json["shape"].items())
    spec.shape.push_back(size.is_null() ? -1 : size.as_int());
  return spec;
}

/// Old caches say _plaintext.
std::string new_name(const std::string& name) {
  if (!name.ends_with(kOldSuffix)) return name;
  return name.substr(0, name.size() - kOldSuffix.size()) + std::string(kNewSuffix);
}

void check_ids(const Features& features, const Example& example) {
  for (const auto& [name, feature] : features) {
    const Value* value = example.find(name);
    const auto* tokens = value == nullptr ? nullptr : std::get_if<Tokens>(value);
    if (tokens == nullptr || tokens->empty() || feature.vocabulary == nullptr) continue;
    const auto [least, most] = std::minmax_element(tokens->begin(), tokens->end());
    QT_CHECK_AS(
        ExitCode::kData, *least >= 0 && *most < feature.vocabulary->vocab_size(),
        "feature '{}' holds id {}, the vocabulary has ids 0 to {} ({}); the cache was made with "
        "another vocabulary",
        name, *least < 0 ? *least : *most, feature.vocabulary->vocab_size() - 1,
        feature.vocabulary->description());
  }
}

/// Features that a cache holds as text: it was made before they were tokenized.
std::set<std::string> text_features(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("info.") || !name.ends_with(".json")) continue;
    for (const auto& [feature, json] : Json::read(entry.path())["features"].members())
      if (json["dtype"].as_string() == "string") names.insert(feature);
  }
  return names;
}

class CachedSource final : public DataSource {
 public:
  CachedSource(fs::path folder, Features features, OnBadExample on_bad_example)
      : folder_(std::move(folder)),
        features_(std::move(features)),
        on_bad_example_(on_bad_example) {}

  std::vector<std::string> splits() const override {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      constexpr std::string_view kPrefix = "info.", kSuffix = ".json";
      if (name.starts_with(kPrefix) && name.ends_with(kSuffix))
        names.push_back(name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()));
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  int64_t num_shards(const std::string& split) const override {
    return Json::read(cache_info_file(folder_, split))["num_shards"].as_int();
  }
  std::shared_ptr<const Reader> open(const std::string& split) const override {
    const auto reader = open_shard(split, {});
    const int64_t examples = Json::read(cache_stats_file(folder_, split))["examples"].as_int();
    QT_CHECK_AS(ExitCode::kData, reader->size() == examples,
                "{}: split '{}' holds {} examples, its stats say {}; cache the task again",
                folder_.string(), split, *reader->size(), examples);
    return reader;
  }
  std::shared_ptr<const Reader> open_shard(const std::string& split,
                                           const ShardInfo& shard) const override {
    return files(split).open_shard(split, shard);
  }

 private:
  FileDataSource files(const std::string& split) const {
    const fs::path file = cache_info_file(folder_, split);
    QT_CHECK_AS(ExitCode::kData, fs::exists(file), "{}: the cache has no split '{}'; it has {}",
                folder_.string(), split, fmt::join(splits(), ", "));
    const Json info = Json::read(file);
    std::vector<FeatureSpec> specs;
    std::vector<std::pair<std::string, std::string>> renamed;
    for (const auto& [name, json] : info["features"].members()) {
      specs.push_back(spec_of(name, json));
      if (new_name(name) != name) renamed.emplace_back(name, new_name(name));
    }
    QT_CHECK_AS(ExitCode::kData, !specs.empty(), "{}: lists no feature", file.string());
    std::vector<std::string> paths;
    const int64_t count = info["num_shards"].as_int();
    const bool arrays =
        fs::exists(folder_ / cache_records_file(split, 0, count, CacheFormat::array_record));
    const CacheFormat format = arrays ? CacheFormat::array_record : CacheFormat::tfrecord;
    for (int64_t i = 0; i < count; ++i) {
      paths.push_back((folder_ / cache_records_file(split, i, count, format)).string());
      QT_CHECK_AS(ExitCode::kData, fs::exists(paths.back()),
                  "{}: is missing, the cache has {} files; cache the task again", paths.back(),
                  count);
    }
    const FileOptions options{.on_bad_example = on_bad_example_};
    return FileDataSource(
        {{split, std::move(paths)}}, options,
        [options](const std::string& path) { return open_record_file(path, options); },
        [parse = ExampleParser(std::move(specs)), renamed, features = features_](
            std::string_view record, Example& out) {
          parse(record, out);
          for (auto& [name, value] : out.items())
            for (const auto& [from, to] : renamed)
              if (name == from) name = to;
          check_ids(features, out);
        });
  }
  fs::path folder_;
  Features features_;
  OnBadExample on_bad_example_;
};

}  // namespace

fs::path cache_folder(const fs::path& cache_dir, const std::string& task) {
  std::string relative = task;
  std::replace(relative.begin(), relative.end(), ':', '/');
  return cache_dir / relative;
}

std::optional<fs::path> find_cache(const std::string& task,
                                   const std::vector<std::string>& cache_dirs) {
  for (const std::string& dir : cache_dirs)
    if (const fs::path folder = cache_folder(local_path(dir), task);
        fs::exists(folder / "COMPLETED"))
      return folder;
  return std::nullopt;
}

fs::path cache_info_file(const fs::path& folder, const std::string& split) {
  return folder / ("info." + split + ".json");
}
fs::path cache_stats_file(const fs::path& folder, const std::string& split) {
  return folder / ("stats." + split + ".json");
}
std::string cache_records_file(const std::string& split, int64_t index, int64_t count,
                               CacheFormat format) {
  return fmt::format("{}.{}-{:05}-of-{:05}", split,
                     format == CacheFormat::tfrecord ? "tfrecord" : "array_record", index, count);
}

CacheOrigin cache_origin(const std::string& task, const Features& features) {
  return {task, records_of(features)};
}

void write_cache_origin(const fs::path& folder, const CacheOrigin& origin) {
  const nlohmann::ordered_json json = {{"task", origin.task},
                                       {"vocabularies", to_json(origin.vocabularies)}};
  atomic_write_file(folder / kOrigin, json.dump(2) + "\n");
}

void check_cache_origin(const fs::path& folder, const CacheOrigin& origin) {
  const fs::path file = folder / kOrigin;
  if (!fs::exists(file)) return;
  const Json json = Json::read(file);
  QT_CHECK_AS(ExitCode::kData, json["task"].as_string() == origin.task,
              "{}: the cache is of task '{}', expected '{}'; choose another cache directory",
              file.string(), json["task"].as_string(), origin.task);
  const std::set<std::string> texts = text_features(folder);
  for (const auto& [feature, then] : vocabulary_records_from(json["vocabularies"])) {
    if (texts.contains(feature)) continue;
    const auto now = origin.vocabularies.find(feature);
    const std::string other = now == origin.vocabularies.end()
                                  ? then.description + "; the task has no such feature"
                                  : difference(then, now->second);
    QT_CHECK_AS(
        ExitCode::kData, other.empty(),
        "{}: feature '{}' was cached with vocabulary {}; bring back the vocabulary, or cache "
        "the task again (quintet cache --overwrite)",
        file.string(), feature, other);
  }
}

DataSourcePtr open_cache(const fs::path& folder, const Features& features,
                         OnBadExample on_bad_example) {
  return std::make_shared<CachedSource>(folder, features, on_bad_example);
}

}  // namespace quintet::data
