// TensorFlow Datasets' prepared directories, read without TensorFlow.
// Source of the forms: features.json, dataset_info.json and file names as tfds 4 writes them.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "data/examples/data_source.h"
#include "data/examples/tf_example.h"
#include "data/sources/record_files.h"
#include "data/sources/tfds_features.h"
#include "data/sources/tfds_splits.h"
#include "runtime/base/check.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInfo = "dataset_info.json";

std::vector<std::string> pieces_of(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    pieces.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return pieces;
}

/// The newest version below a folder that a pattern such as "1.*.*" (empty: any) allows.
fs::path newest_version(const fs::path& folder, const std::string& pattern) {
  const std::vector<std::string> wanted = pieces_of(pattern, '.');
  fs::path best;
  std::vector<int> best_numbers;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    const auto parts = pieces_of(entry.path().filename().string(), '.');
    bool fits = pattern.empty() || parts.size() == wanted.size();
    std::vector<int> numbers;
    for (size_t i = 0; fits && i < parts.size(); ++i) {
      fits = pattern.empty() || wanted[i] == "*" || wanted[i] == parts[i];
      numbers.push_back(std::atoi(parts[i].c_str()));
    }
    if (fits && fs::exists(entry.path() / kInfo) && (best.empty() || numbers > best_numbers)) {
      best = entry.path();
      best_numbers = numbers;
    }
  }
  return best;
}

/// As TFDS calls the folders of its data sets: ThePile is the_pile.
std::string snake_case(const std::string& name) {
  std::string snake;
  for (const char c : name) {
    const bool capital = c >= 'A' && c <= 'Z';
    if (capital && !snake.empty() && snake.back() != '/') snake += '_';
    snake += capital ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return snake;
}

/// The folder of versions of a data set: of its one configuration, if the name says none and there is one.
fs::path folder_of_versions(const fs::path& folder) {
  if (fs::exists(folder / kInfo) || !newest_version(folder, "").empty()) return folder;
  std::vector<fs::path> configurations;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing))
    if (entry.is_directory() && !newest_version(entry.path(), "").empty())
      configurations.push_back(entry.path());
  return configurations.size() == 1 ? configurations.front() : folder;
}

/// "glue/cola:2.0.0" below a directory; an empty name: the directory itself.
fs::path find_dataset(const std::string& name, const std::string& data_dir) {
  const size_t colon = std::min(name.find(':'), name.size());
  fs::path folder = tfds_directory(data_dir) / name.substr(0, colon);
  if (!fs::exists(folder)) folder = tfds_directory(data_dir) / snake_case(name.substr(0, colon));
  folder = folder_of_versions(folder);
  fs::path found = fs::exists(folder / kInfo)
                       ? folder
                       : newest_version(folder, name.substr(std::min(colon + 1, name.size())));
  QT_CHECK_AS(ExitCode::kData, !found.empty(),
              "{}: no prepared TFDS data set '{}' there (a folder with {}); prepare it with TFDS "
              "and name its directory with --tfds_data_dir or $TFDS_DATA_DIR",
              folder.string(), name, kInfo);
  return found;
}

struct Split {
  std::string name, files;  // template of the file names
  std::vector<int64_t> lengths;
  int64_t size() const {
    int64_t total = 0;
    for (int64_t length : lengths) total += length;
    return total;
  }
};

std::string filled_in(std::string text,
                      const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [name, value] : values)
    if (const size_t at = text.find(name); at != std::string::npos)
      text.replace(at, name.size(), value);
  return text;
}

/// A data set's folder and what its json files say.
struct Dataset {
  fs::path folder;
  std::string name, format = "tfrecord";
  std::vector<Split> splits;
  std::vector<FeatureSpec> features;

  explicit Dataset(fs::path at, const TfdsDecoders* decoders = nullptr) : folder(std::move(at)) {
    const Json info = Json::read(folder / kInfo);
    name = info["name"].as_string();
    if (info.has("fileFormat")) format = info["fileFormat"].as_string();
    QT_CHECK_AS(ExitCode::kData, format == "tfrecord" || format == "array_record",
                "{}: fileFormat is '{}', only tfrecord and array_record are read; prepare the data "
                "set with file_format='array_record'",
                (folder / kInfo).string(), format);
    for (const Json& json : info["splits"].items()) {
      Split split{.name = json["name"].as_string(),
                  .files = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                  .lengths = {}};
      if (json.has("filepathTemplate")) split.files = json["filepathTemplate"].as_string();
      for (const Json& length : json["shardLengths"].items())
        split.lengths.push_back(tfds_number(length, 0));
      splits.push_back(std::move(split));
    }
    if (decoders != nullptr || fs::exists(folder / "features.json"))
      features = tfds_features(Json::read(folder / "features.json"), decoders);
  }

  std::vector<std::pair<std::string, int64_t>> sizes() const {
    std::vector<std::pair<std::string, int64_t>> all;
    for (const Split& split : splits) all.emplace_back(split.name, split.size());
    return all;
  }

  std::string file(const Split& split, size_t shard) const {
    const std::string index = fmt::format("{:05}", shard),
                      count = fmt::format("{:05}", split.lengths.size());
    return (folder / filled_in(split.files, {{"{DATASET}", name},
                                             {"{SPLIT}", split.name},
                                             {"{FILEFORMAT}", format},
                                             {"{SHARD_X_OF_Y}", index + "-of-" + count},
                                             {"{SHARD_INDEX}", index},
                                             {"{NUM_SHARDS}", count}}))
        .string();
  }
};

/// A file and which of its examples.
struct Part {
  std::string path;
  int64_t length, begin, end;
};

std::vector<Part> parts_of(const Dataset& dataset, const std::string& text) {
  std::vector<Part> parts;
  for (const TfdsSlice& slice : parse_tfds_split(text, dataset.sizes())) {
    const Split& split = *std::find_if(dataset.splits.begin(), dataset.splits.end(),
                                       [&](const Split& s) { return s.name == slice.split; });
    int64_t first = 0;  // example of the file at hand
    for (size_t shard = 0; shard < split.lengths.size(); first += split.lengths[shard++]) {
      const int64_t length = split.lengths[shard];
      const int64_t begin = std::clamp<int64_t>(slice.begin - first, 0, length);
      const int64_t end = std::clamp<int64_t>(slice.end - first, 0, length);
      if (begin < end) parts.push_back({dataset.file(split, shard), length, begin, end});
    }
  }
  return parts;
}

}  // namespace

fs::path tfds_directory(std::string data_dir) {
  if (data_dir.empty())
    if (const char* set = std::getenv("TFDS_DATA_DIR")) data_dir = set;
  if (data_dir.empty()) {
    const char* home = std::getenv("HOME");
    data_dir = std::string(home == nullptr ? "" : home) + "/tensorflow_datasets";
  }
  return local_path(data_dir);
}

TfdsDataSource::TfdsDataSource(std::string tfds_name, std::string tfds_data_dir, Splits splits,
                               OnBadExample on_bad_example,
                               std::shared_ptr<const TfdsDecoders> decoders)
    : name_(std::move(tfds_name)),
      data_dir_(std::move(tfds_data_dir)),
      splits_(std::move(splits)),
      on_bad_example_(on_bad_example),
      decoders_(std::move(decoders)) {}

std::vector<std::string> TfdsDataSource::splits() const {
  std::vector<std::string> names;
  for (const auto& [name, slice] : splits_) names.push_back(name);
  if (names.empty())
    for (const Split& split : Dataset(find_dataset(name_, data_dir_)).splits)
      names.push_back(split.name);
  return names;
}

std::string TfdsDataSource::slice_of(const std::string& split) const {
  if (splits_.empty()) return split;
  const auto found = std::find_if(splits_.begin(), splits_.end(),
                                  [&](const auto& item) { return item.first == split; });
  QT_CHECK_AS(ExitCode::kData, found != splits_.end(), "unknown split '{}'; the source has {}",
              split, fmt::join(splits(), ", "));
  return found->second;
}

int64_t TfdsDataSource::num_shards(const std::string& split) const {
  return std::ssize(parts_of(Dataset(find_dataset(name_, data_dir_)), slice_of(split)));
}

std::shared_ptr<const Reader> TfdsDataSource::open(const std::string& split) const {
  return open_shard(split, {});
}

std::shared_ptr<const Reader> TfdsDataSource::open_shard(const std::string& split,
                                                         const ShardInfo& shard) const {
  const Dataset dataset(find_dataset(name_, data_dir_), decoders_.get());
  const std::vector<Part> parts = parts_of(dataset, slice_of(split));
  if (std::ssize(parts) < shard.num_shards) return DataSource::open_shard(split, shard);
  const FileOptions options{.on_bad_example = on_bad_example_};
  std::vector<RecordFilePtr> files;
  for (auto i = static_cast<size_t>(shard.index); i < parts.size();
       i += static_cast<size_t>(shard.num_shards)) {
    const Part& part = parts[i];
    auto file = open_record_file(part.path, options);
    QT_CHECK_AS(ExitCode::kData, file->size() == part.length, "{}: holds {} examples, {} says {}",
                part.path, file->size(), kInfo, part.length);
    files.push_back(slice(std::move(file), part.begin, part.end));
  }
  return file_reader(std::move(files), ExampleParser(dataset.features), options);
}

}  // namespace quintet::data
