#pragma once
// TFDS's little language of splits: 'train[:90%]', 'train[10:20]', 'train+validation', 'all'.
// Source: tfds.core.splits and tfrecords_reader (percentages round to the nearest example, halves to
// the even one).

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace quintet::data {

/// Examples [begin, end) of a split.
struct TfdsSlice {
  std::string split;
  int64_t begin, end;
  bool operator==(const TfdsSlice&) const = default;
};

/// Where data sets lie: `data_dir`; if it is empty, $TFDS_DATA_DIR, else ~/tensorflow_datasets.
std::filesystem::path tfds_directory(std::string data_dir);

/// `sizes`: examples of each split. Throws kData for an unknown split, a usage error for bad grammar.
std::vector<TfdsSlice> parse_tfds_split(const std::string& text,
                                        const std::vector<std::pair<std::string, int64_t>>& sizes);

}  // namespace quintet::data
