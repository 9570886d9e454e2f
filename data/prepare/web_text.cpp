// C4 as AllenAI publishes it and The Pile, compressed files of JSON lines. Source of the forms: tfds 4.9, text/c4.py, and
// tfds_pile.py of T5X's contrib/gpu.
#include "data/prepare/prepare.h"
#include "data/sources/record_files.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

/// Calls `take` with each line of files, compressed or not, one after the other.
void for_lines(const std::vector<std::string>& files,
               const std::function<void(const Json&)>& take) {
  std::string buffer;
  for (const std::string& path : files) {
    const RecordFilePtr lines = open_line_file(path, {}, true);
    for (int64_t i = 0; i < lines->size(); ++i)
      take(Json::parse(lines->read(i, buffer), lines->where(i)));
  }
}

/// FOLDER/SUBFOLDER/PATTERN, or FOLDER/PATTERN.
std::vector<std::string> archive_files(const fs::path& from, const std::string& subfolder,
                                       const std::string& pattern) {
  const fs::path within = from / subfolder;
  return expand_patterns({((fs::exists(within) ? within : from) / pattern).string()});
}

std::string text_or_nothing(const Json& page, const std::string& name) {
  return page.has(name) ? page[name].as_string() : "";
}

/// The published files have no "content-type" and "content-length", which are empty then.
ArchiveDataset c4(const std::string& config) {
  std::vector<std::pair<std::string, tfds::Feature>> features;
  for (const char* name : {"content-length", "content-type", "text", "timestamp", "url"})
    features.emplace_back(name, tfds::text());
  ArchiveDataset made{
      .dataset = {.name = "c4",
                  .config = config,
                  .version = "3.1.0",
                  .features = tfds::dict(features)},
      .older_versions = {"2.2.0", "2.2.1", "2.3.0", "2.3.1", "3.0.1"},
      .files = fmt::format("{0}/c4-train.*.json.gz, {0}/c4-validation.*.json.gz", config),
      .splits = {}};
  for (const char* split : {"train", "validation"})
    made.splits.push_back({split, [=, pattern = fmt::format("c4-{}.*.json*", split)](
                                      const fs::path& from, const TfdsWriter::Add& add) {
                             for_lines(archive_files(from, config, pattern), [&](const Json& page) {
                               Example example;
                               for (const auto& [name, feature] : features)
                                 example.set(name, text_or_nothing(page, name));
                               example.set("text", page["text"].as_string());
                               add(page["url"].as_string(), example);
                             });
                           }});
  return made;
}

/// Examples have the number of their line as key, which all files of a split share.
ArchiveDataset pile() {
  ArchiveDataset made{.dataset = {.name = "the_pile",
                                  .config = "lm",
                                  .version = "1.0.0",
                                  .features = tfds::dict({{"text", tfds::text()}})},
                      .older_versions = {},
                      .files = "train/*.jsonl.zst, val.jsonl.zst, test.jsonl.zst",
                      .splits = {}};
  const auto add_split = [&](const char* split, const char* subfolder, const char* pattern) {
    made.splits.push_back(
        {split, [=](const fs::path& from, const TfdsWriter::Add& add) {
           int64_t number = 0;
           for_lines(archive_files(from, subfolder, pattern), [&](const Json& line) {
             const std::string key = fmt::format("{}_the_pile", number++);
             Example example;
             if (!line.is_string() && line["text"].is_array())
               example.set("text", fmt::format("{}", fmt::join(line["text"].as_strings(), "\n\n")));
             else
               example.set("text", line.is_string() ? line.as_string() : line["text"].as_string());
             add(key, example);
           });
         }});
  };
  add_split("train", "train", "*.jsonl*");
  add_split("validation", "", "val.jsonl*");
  add_split("test", "", "test.jsonl*");
  return made;
}

}  // namespace

std::vector<ArchiveDataset> web_text_datasets() { return {c4("en"), c4("realnewslike"), pile()}; }

}  // namespace quintet::data
