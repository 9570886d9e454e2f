#include "data/prepare/prepare.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/nearest.h"

namespace quintet::data {

namespace fs = std::filesystem;

const std::vector<ArchiveDataset>& archive_datasets() {
  static const std::vector<ArchiveDataset> all = [] {
    std::vector<ArchiveDataset> made;
    for (auto& some : {glue_datasets(), super_glue_datasets(), squad_datasets(),
                       cnn_dailymail_datasets(), web_text_datasets(), wmt_datasets()})
      made.insert(made.end(), some.begin(), some.end());
    return made;
  }();
  return all;
}

fs::path archive_file(const fs::path& from, const std::string& subfolder, const std::string& file) {
  const fs::path within = from / subfolder / file, beside = from / file;
  if (fs::exists(within)) return within;
  QT_CHECK_AS(ExitCode::kData, fs::exists(beside),
              "{}: is missing, and so is {}; --from names the "
              "folder in which the archive was unpacked",
              within.string(), beside.string());
  return beside;
}

Prepared prepare(const std::string& name, const fs::path& from, const fs::path& data_dir) {
  const auto& all = archive_datasets();
  const size_t colon = std::min(name.find(':'), name.size());
  const auto found = std::ranges::find(all, name.substr(0, colon), &ArchiveDataset::name);
  if (found == all.end()) {
    std::vector<std::string> names;
    for (const ArchiveDataset& one : all) names.push_back(one.name());
    fail(ExitCode::kUsage, "'{}' cannot be prepared{}; these can: {}", name,
         did_you_mean(name, names), fmt::join(names, ", "));
  }
  TfdsDataset dataset = found->dataset;
  if (colon < name.size()) {
    std::vector<std::string> versions = found->older_versions;
    versions.push_back(dataset.version);
    dataset.version = name.substr(colon + 1);
    QT_CHECK(std::ranges::count(versions, dataset.version) > 0,
             "'{}': that version cannot be prepared; these can: {}", name,
             fmt::join(versions, ", "));
  }
  TfdsWriter writer(std::move(dataset), data_dir);
  Prepared prepared{writer.folder(), {}};
  for (const ArchiveDataset::Split& split : found->splits)
    prepared.examples.emplace_back(
        split.name,
        writer.split(split.name, [&](const TfdsWriter::Add& add) { split.generate(from, add); }));
  writer.finish();
  return prepared;
}

}  // namespace quintet::data
