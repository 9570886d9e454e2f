#include "apps/flags/data_flags.h"

#include <array>

#include "data/examples/data_source.h"
#include "runtime/base/check.h"
#include "runtime/gin/syntax/value.h"

namespace quintet {
namespace {

constexpr const char* kCacheDirs = "--seqio_additional_cache_dirs";
constexpr const char* kTfdsDir = "--tfds_data_dir";
constexpr const char* kBadRecords = "--bad_records";

std::string text(const std::string& value) { return gin::Value(value).repr(); }

void add_bindings(const std::string& flag, const std::string& value,
                  std::vector<std::string>& bindings) {
  if (flag == kCacheDirs) {
    std::string dirs;
    for (size_t start = 0; start <= value.size();) {
      const size_t end = std::min(value.find(',', start), value.size());
      if (end > start) dirs += text(value.substr(start, end - start)) + ", ";
      start = end + 1;
    }
    bindings.push_back("t5x.utils.DatasetConfig.cache_dirs = [" + dirs + "]");
  } else if (flag == kTfdsDir) {
    bindings.push_back("seqio.dataset_providers.TfdsDataSource.tfds_data_dir = " + text(value));
  } else {
    QT_CHECK(data::parse_on_bad_example(value).has_value(),
             "{}: expected fail, skip or skip:N such as skip:10, found '{}'", kBadRecords, value);
    for (const char* what :
         {"t5x.utils.DatasetConfig", "seqio.dataset_providers.TextLineDataSource",
          "seqio.dataset_providers.TFExampleDataSource", "seqio.dataset_providers.TfdsDataSource",
          "quintet.data.TsvDataSource", "quintet.data.JsonlDataSource"})
      bindings.push_back(std::string(what) + ".on_bad_example = " + text(value));
  }
}

}  // namespace

gin::CommandLine extract_data_command_line(std::vector<std::string>& args) {
  gin::CommandLine line = gin::extract_command_line(args);
  std::vector<std::string> rest;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string flag = args[i].substr(0, args[i].find('='));
    if (flag != kCacheDirs && flag != kTfdsDir && flag != kBadRecords) {
      rest.push_back(args[i]);
    } else if (flag.size() < args[i].size()) {
      add_bindings(flag, args[i].substr(flag.size() + 1), line.bindings);
    } else {
      QT_CHECK(i + 1 < args.size(), "{}: expected a value behind it", flag);
      add_bindings(flag, args[++i], line.bindings);
    }
  }
  args = std::move(rest);
  return line;
}

void describe_gin_flags(CLI::App& app, const std::string& gin_file) {
  constexpr const char* kGroup = "Configuration";
  const std::string about_file = gin_file + "; may be repeated, later ones win";
  app.add_option("--gin_file", about_file)->group(kGroup);
  app.add_option("--gin.NAME", "--gin.NAME=VALUE sets a name, as in --gin.BATCH_SIZE=8")
      ->group(kGroup);
  app.add_option("--gin_bindings", "the same written as gin, as in 'BATCH_SIZE = 8'")
      ->group(kGroup);
  app.add_option("--gin_search_paths", "folders to search for gin files, comma-separated")
      ->group(kGroup);
  app.add_flag_callback(
         "--skip_unknown", [] {},
         "warn about unknown names and bindings that cannot be met instead of failing")
      ->group(kGroup);
  app.add_flag_callback(
         "--allow_commands", [] {},
         "start the worker processes that a model directory's own configuration names")
      ->group(kGroup);
}

void describe_data_flags(CLI::App& app) {
  app.add_option(kCacheDirs, "folders with seqio's offline caches, comma-separated")->group("Data");
  app.add_option(kTfdsDir, "folder with data sets prepared by TFDS")->group("Data");
  app.add_option(kBadRecords,
                 "what to do with unreadable examples: fail, skip, or skip at most N (skip:N); "
                 "default: fail")
      ->group("Data");
}

}  // namespace quintet
