#include "apps/input/same_data.h"

#include <filesystem>

#include "apps/input/run_vocabularies.h"
#include "data/reading/file_fingerprints.h"

namespace quintet {
namespace {

using Lines = std::vector<Ranks::Line>;

constexpr const char* kAdvice =
    "give every host the same files: copy them anew, or read them from one place";

data::Contents contents_of(const data::Provider& provider, const data::DatasetConfig& set) {
  data::Contents all;
  for (const data::Task* task : provider.tasks()) {
    const std::vector<std::string> splits = task->splits();
    if (std::find(splits.begin(), splits.end(), set.split) != splits.end())
      all.add(task->contents(
          {.split = set.split, .use_cached = set.use_cached, .cache_dirs = set.cache_dirs}));
  }
  return all;
}

void add_files(const std::string& name, const data::Contents& contents, Lines& lines) {
  for (const data::FileFingerprint& file : data::file_fingerprints(contents.files)) {
    const std::string what = fmt::format("{} bytes, CRC-32C {:08x}{}", file.bytes, file.crc,
                                         file.sampled ? " of a sample" : "");
    lines.push_back(
        {fmt::format("{} {} {}", name, std::filesystem::path(file.path).filename().string(), what),
         fmt::format("{}: {}: {}", name, file.path, what)});
  }
  const std::string count =
      fmt::format("{}: {} examples of {} files", name, contents.examples, contents.files.size());
  lines.push_back({count, count});
}

void add_vocabularies(const data::VocabularyRecords& records, Lines& lines) {
  for (const auto& [name, record] : records) {
    const std::string what =
        record.file ? fmt::format(" {} {:08x}", record.file->bytes, record.file->crc) : "";
    lines.push_back({name + " " + record.description + what,
                     fmt::format("vocabulary {}: {}", name, to_string(record))});
  }
}

}  // namespace

void agree_on_data(const Ranks& ranks, const ConfiguredModel& model,
                   const std::vector<SharedData>& sets, bool serves_data) {
  if (ranks.session().size() == 1) return;
  Lines first, others;
  for (const SharedData& shared : sets) {
    Lines& lines = &shared == &sets.front() ? first : others;
    if (serves_data && &lines == &others) continue;
    add_vocabularies(vocabularies_of(model, shared.provider->output_features()), lines);
    add_files(shared.name, contents_of(*shared.provider, shared.dataset), lines);
  }
  ranks.agree_on("data file or vocabulary", first, kAdvice);
  ranks.agree_on("data file or vocabulary", others, kAdvice);
}

void agree_on_data(const Ranks& ranks, const std::vector<const data::Task*>& tasks) {
  if (ranks.session().size() == 1) return;
  Lines lines;
  for (const data::Task* task : tasks) {
    add_vocabularies(data::records_of(task->output_features()), lines);
    for (const std::string& split : task->splits())
      add_files(task->name() + " " + split, task->contents({.split = split}), lines);
  }
  ranks.agree_on("data file or vocabulary", lines, kAdvice);
}

}  // namespace quintet
