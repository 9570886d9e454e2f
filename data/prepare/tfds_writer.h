#pragma once
// Writes a data set as TensorFlow Datasets prepares it: NAME/CONFIG/VERSION with dataset_info.json, features.json,
// names of labels, and TFRecord files of tf.Example in the order that TFDS gives them, by the MD5 of the split's name
// and the example's key. Source of the forms: tfds 4.9 (core/writer.py, shuffle.py, hashing.py, utils/shard_utils.py).
//
//   TfdsWriter writer({.name = "squad", .config = "v1.1", .version = "3.0.0", .features = features}, data_dir);
//   writer.split("train", [&](const TfdsWriter::Add& add) { add("56be4db0acb8001400a502ec", example); });
//   writer.finish();

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/cache/spill.h"
#include "data/examples/dataset.h"

namespace quintet::data {

/// Nodes of features.json.
namespace tfds {
using Feature = nlohmann::ordered_json;
Feature text();
/// A single value: "int32", "int64", "float32", "bool", "string".
Feature scalar(const std::string& dtype);
/// The classes' names go to NAME.labels.txt.
Feature class_label(std::vector<std::string> names);
/// Any number of values, or of objects' members.
Feature sequence(Feature of);
/// A text of each language, called by its code.
Feature translation(std::vector<std::string> languages);
Feature dict(std::vector<std::pair<std::string, Feature>> features);
}  // namespace tfds

struct TfdsDataset {
  std::string name, config, version;
  tfds::Feature features;  // a dict
};

class TfdsWriter {
 public:
  /// An example's key, unique in its split, and its features; nested ones are called "answers/text".
  using Add = std::function<void(const std::string& key, const Example& example)>;
  /// Throws kData if there is such a version in `data_dir` already.
  TfdsWriter(TfdsDataset dataset, const std::filesystem::path& data_dir);
  /// Number of examples. Throws kData for a key that comes twice and a split without examples.
  int64_t split(const std::string& name, const std::function<void(const Add&)>& generate);
  /// Writes the rest, and gives the folder its name. Nothing but a folder NAME.incomplete is left before.
  void finish();
  const std::filesystem::path& folder() const { return folder_; }

 private:
  struct Split {
    std::string name;
    int64_t bytes;
    std::vector<int64_t> shard_lengths;
  };
  void write_shards(const std::string& split, const Spill& spill,
                    const std::vector<int64_t>& lengths) const;
  TfdsDataset dataset_;
  std::filesystem::path folder_, work_;
  std::vector<Split> splits_;
};

/// How many files a split has.
int64_t tfds_num_shards(int64_t bytes, int64_t examples);
/// How many of its examples each has.
std::vector<int64_t> tfds_shard_lengths(int64_t examples, int64_t shards);

}  // namespace quintet::data
