#include "apps/finetune/finetune_tasks.h"

#include <algorithm>
#include <filesystem>
#include <regex>

#include "runtime/base/check.h"
#include "runtime/base/files/path_map.h"

namespace quintet {
namespace {

/// "NAME=FILE"; no name where the value is a file's.
std::pair<std::string, std::string> named_file(const std::string& value) {
  static const std::regex pattern(R"(([A-Za-z_]\w*)=(.+))");
  std::smatch found;
  if (std::regex_match(value, found, pattern)) return {found[1], found[2]};
  return {kFinetuneTask, value};
}

/// .jsonl, .csv or .tsv, compressed or not.
std::string format_of(const std::string& file) {
  std::filesystem::path path = file;
  if (path.extension() == ".gz" || path.extension() == ".zst") path = path.stem();
  const std::string format = path.extension().string();
  QT_CHECK(format != ".parquet",
           "{}: Parquet is not read; convert it: python3 -c \"import pandas; "
           "pandas.read_parquet('{}').to_json('{}', orient='records', lines=True, "
           "force_ascii=False)\"",
           file, file, std::filesystem::path(file).replace_extension(".jsonl").string());
  QT_CHECK(format == ".jsonl" || format == ".csv" || format == ".tsv",
           "{}: expected a file that ends in .jsonl, .csv or .tsv, or in one of these and .gz or "
           ".zst",
           file);
  return format;
}

/// All files of a task have one format.
void add_file(const FinetuneTask& task, std::vector<std::string>& files, const std::string& file) {
  QT_CHECK(format_of(file) == task.format,
           "{}: a task's files have one format, but {} is {}; convert one, or make two tasks: "
           "--train=NAME=FILE",
           file, task.train.front(), task.format);
  files.push_back(absolute_file(file));
}

}  // namespace

std::string absolute_file(const std::string& file) {
  return std::filesystem::absolute(local_path(file)).lexically_normal().string();
}

std::vector<FinetuneTask> finetune_tasks(const FinetuneFlags& flags) {
  std::vector<FinetuneTask> tasks;
  const auto at = [&](const std::string& name) {
    return std::ranges::find(tasks, name, &FinetuneTask::name);
  };
  for (const std::string& value : flags.train) {
    const auto [name, file] = named_file(value);
    if (at(name) == tasks.end()) tasks.push_back({name, format_of(file), {}, {}});
    add_file(*at(name), at(name)->train, file);
  }
  QT_CHECK(tasks.size() == 1 || at(kFinetuneTask) == tasks.end(),
           "quintet finetune: of several tasks each has a name: --train=NAME=FILE");
  for (const std::string& value : flags.validation) {
    const auto [name, file] = named_file(value);
    QT_CHECK(at(name) != tasks.end(), "--validation={}: no --train={}=FILE is given", value, name);
    add_file(*at(name), at(name)->validation, file);
  }
  return tasks;
}

}  // namespace quintet
