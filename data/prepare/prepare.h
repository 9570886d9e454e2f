#pragma once
// Data sets from their published archives, unpacked on disk, to the directories that TensorFlow Datasets prepares and
// seqio.TfdsDataSource reads.
//
//   const Prepared prepared = prepare("glue/cola:1.0.0", "/data/archives", "/data/tensorflow_datasets");

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "data/prepare/tfds_writer.h"

namespace quintet::data {

/// A data set that can be prepared.
struct ArchiveDataset {
  TfdsDataset dataset;
  std::vector<std::string> older_versions;  // that are made alike
  /// What `from` must hold, for people.
  std::string files;
  struct Split {
    std::string name;
    /// Reads the split's files below `from`.
    std::function<void(const std::filesystem::path& from, const TfdsWriter::Add& add)> generate;
  };
  std::vector<Split> splits;
  /// "glue/cola"
  std::string name() const {
    return dataset.name + (dataset.config.empty() ? "" : "/" + dataset.config);
  }
};

/// All there are, by name.
const std::vector<ArchiveDataset>& archive_datasets();

struct Prepared {
  std::filesystem::path folder;
  std::vector<std::pair<std::string, int64_t>> examples;  // of each split
};
/// Without a version in the name, the newest. Throws a usage error for an unknown name or version; kData: files that are missing or not of their form, with file and line; a
/// version that is there already; kDisk.
Prepared prepare(const std::string& name, const std::filesystem::path& from,
                 const std::filesystem::path& data_dir);

/// FOLDER/SUBFOLDER/FILE, as the archive has it, or FOLDER/FILE. Throws kData naming both.
std::filesystem::path archive_file(const std::filesystem::path& from, const std::string& subfolder,
                                   const std::string& file);

std::vector<ArchiveDataset> cnn_dailymail_datasets();
std::vector<ArchiveDataset> glue_datasets();
std::vector<ArchiveDataset> squad_datasets();
std::vector<ArchiveDataset> super_glue_datasets();
std::vector<ArchiveDataset> web_text_datasets();
std::vector<ArchiveDataset> wmt_datasets();

}  // namespace quintet::data
