#include "data/prepare/tfds_writer.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "data/examples/md5.h"
#include "data/examples/tf_example.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames = "names";  // of classes: taken out of features.json
constexpr const char* kPython = "tensorflow_datasets.core.features.";

tfds::Feature node(const char* python_class, const char* kind, tfds::Feature what) {
  return {{"pythonClassName", kPython + std::string(python_class)}, {kind, std::move(what)}};
}

/// Writes the names of classes, and takes them out of the features.
void write_labels(tfds::Feature& feature, const std::string& name, const fs::path& folder) {
  if (feature.contains("classLabel")) {
    std::string names;
    for (const auto& label : feature["classLabel"][kNames])
      names += label.get<std::string>() + "\n";
    feature["classLabel"].erase(kNames);
    atomic_write_file(folder / (name + ".labels.txt"), names);
  }
  if (feature.contains("sequence")) write_labels(feature["sequence"]["feature"], name, folder);
  if (feature.contains("featuresDict"))
    for (auto& [key, child] : feature["featuresDict"]["features"].items())
      write_labels(child, name.empty() ? key : name + "-" + key, folder);
}

/// The first 64 of the 128 bits by which TFDS orders examples.
uint64_t order_of(const std::string& split, const std::string& key) {
  const std::string digest = md5_hex(split + key);
  uint64_t bits = 0;
  std::from_chars(digest.data(), digest.data() + 16, bits, 16);
  return bits;
}

}  // namespace

namespace tfds {

Feature text() { return node("text_feature.Text", "text", Feature::object()); }

Feature scalar(const std::string& dtype) {
  return node("tensor_feature.Tensor", "tensor",
              {{"shape", Feature::object()}, {"dtype", dtype}, {"encoding", "none"}});
}

Feature class_label(std::vector<std::string> names) {
  const std::string count = std::to_string(names.size());
  return node("class_label_feature.ClassLabel", "classLabel",
              {{"numClasses", count}, {kNames, std::move(names)}});
}

Feature sequence(Feature of) {
  return node("sequence_feature.Sequence", "sequence",
              {{"feature", std::move(of)}, {"length", "-1"}});
}

Feature translation(std::vector<std::string> languages) {
  std::sort(languages.begin(), languages.end());
  return node("translation_feature.Translation", "translation",
              {{"languages", std::move(languages)}});
}

Feature dict(std::vector<std::pair<std::string, Feature>> features) {
  std::sort(features.begin(), features.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  Feature members = Feature::object();
  for (auto& [name, feature] : features) members[name] = std::move(feature);
  return node("features_dict.FeaturesDict", "featuresDict", {{"features", std::move(members)}});
}

}  // namespace tfds

int64_t tfds_num_shards(int64_t bytes, int64_t examples) {
  constexpr int64_t kFrame = 16, kLeastBytes = int64_t{64} << 20, kMostBytes = int64_t{1} << 30,
                    kUsual = 1024;
  const int64_t size = bytes + examples * kFrame;
  const int64_t most = size / kLeastBytes, least = size / kMostBytes;
  if (least > kUsual) {
    int64_t shards = 2 * kUsual;
    while (shards < least || examples < shards) shards += kUsual;
    return shards;
  }
  for (int64_t shards = kUsual; shards > 1; shards /= 2)
    if (least <= shards && shards <= most && examples >= shards) return shards;
  return 1;
}

std::vector<int64_t> tfds_shard_lengths(int64_t examples, int64_t shards) {
  // examples * shard / shards, rounded as Python does: halves to the even number.
  const auto boundary = [=](int64_t shard) {
    const int64_t product = 2 * examples * shard, whole = product / (2 * shards);
    const int64_t rest = product % (2 * shards);
    return whole + (rest > shards || (rest == shards && whole % 2 == 1));
  };
  std::vector<int64_t> lengths;
  for (int64_t shard = 0; shard < shards; ++shard)
    lengths.push_back(boundary(shard + 1) - boundary(shard));
  return lengths;
}

TfdsWriter::TfdsWriter(TfdsDataset dataset, const fs::path& data_dir)
    : dataset_(std::move(dataset)),
      folder_(data_dir / dataset_.name / dataset_.config / dataset_.version),
      work_(folder_.string() + ".incomplete") {
  QT_CHECK_AS(ExitCode::kData, !is_there(folder_),
              "{}: is there already; remove it to prepare it again", folder_.string());
  remove_tree(work_);
  make_folders(work_);
}

void TfdsWriter::write_shards(const std::string& split, const Spill& spill,
                              const std::vector<int64_t>& lengths) const {
  constexpr size_t kWritten = size_t{1} << 20;
  size_t shard = 0;
  int64_t examples = 0, place = 0;  // of the shard at hand
  std::string bytes;
  File file;
  const auto flush = [&] {
    file.write_at(place, std::as_bytes(std::span(bytes.data(), bytes.size())));
    place += std::ssize(bytes);
    bytes.clear();
  };
  std::optional<uint64_t> before;
  for (int64_t bucket = 0; bucket < kSpillBuckets; ++bucket) {
    std::string records;
    auto entries = spill.entries(bucket, bucket + 1);
    spill.read(entries, records);
    for (const SpillEntry& entry : entries) {
      QT_CHECK_AS(ExitCode::kData, before != entry.key,
                  "split '{}' of {}: two examples have the same key", split, dataset_.name);
      before = entry.key;
      if (examples == 0) {
        file = File::create_new(work_ / fmt::format("{}-{}.tfrecord-{:05}-of-{:05}", dataset_.name,
                                                    split, shard, lengths.size()));
        place = 0;
      }
      bytes.append(records, entry.offset, entry.bytes);
      const bool last = ++examples == lengths[shard];
      if (last || bytes.size() >= kWritten) flush();
      if (!last) continue;
      file.sync();
      file.close_checked();
      ++shard;
      examples = 0;
    }
  }
}

int64_t TfdsWriter::split(const std::string& name,
                          const std::function<void(const Add&)>& generate) {
  const fs::path spilled = work_ / ("spill." + name);
  int64_t examples = 0, bytes = 0;
  SpillWriter spill_writer(spilled);
  generate([&](const std::string& key, const Example& example) {
    const std::string record = serialize_tf_example(example);
    spill_writer.add(order_of(name, key), record);
    ++examples;
    bytes += std::ssize(record);
  });
  spill_writer.finish();
  QT_CHECK_AS(ExitCode::kData, examples > 0, "split '{}' of {} has no example", name,
              dataset_.name);
  Split split{name, bytes, tfds_shard_lengths(examples, tfds_num_shards(bytes, examples))};
  write_shards(name, Spill(spilled), split.shard_lengths);
  for (const std::string& part : names_in(work_))
    if (part.starts_with("spill.")) remove_tree(work_ / part);
  splits_.push_back(std::move(split));
  return examples;
}

void TfdsWriter::finish() {
  nlohmann::ordered_json info = {{"fileFormat", "tfrecord"},
                                 {"moduleName", "tensorflow_datasets"},
                                 {"name", dataset_.name},
                                 {"splits", nlohmann::ordered_json::array()},
                                 {"version", dataset_.version}};
  if (!dataset_.config.empty()) info["configName"] = dataset_.config;
  for (const Split& split : splits_) {
    nlohmann::ordered_json lengths = nlohmann::ordered_json::array();
    for (const int64_t length : split.shard_lengths) lengths.push_back(std::to_string(length));
    info["splits"].push_back({{"filepathTemplate", "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"},
                              {"name", split.name},
                              {"numBytes", std::to_string(split.bytes)},
                              {"shardLengths", std::move(lengths)}});
  }
  write_labels(dataset_.features, "", work_);
  atomic_write_file(work_ / "features.json", dataset_.features.dump(4) + "\n");
  atomic_write_file(work_ / "dataset_info.json", info.dump(2) + "\n");
  rename_path(work_, folder_);
  sync_folder(folder_.parent_path());
}

}  // namespace quintet::data
