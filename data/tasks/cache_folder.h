#pragma once
// seqio's offline caches: a folder of a task with {split}.tfrecord-00000-of-00016 (or .array_record), info.{split}.json
// (number of files, dtype and shape of the features), stats.{split}.json and COMPLETED, which is written
// last. Source of names and forms: seqio/utils.py, seqio/beam_utils.py.
//
//   if (const auto folder = find_cache("glue:cola", cache_dirs)) source = open_cache(*folder);

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/examples/data_source.h"
#include "data/examples/preprocessor.h"
#include "data/examples/vocabulary_record.h"

namespace quintet::data {

/// The task's folder below a cache directory: ':' in the name divides folders.
std::filesystem::path cache_folder(const std::filesystem::path& cache_dir, const std::string& task);
/// The first of the directories that has a completed cache of the task.
std::optional<std::filesystem::path> find_cache(const std::string& task,
                                                const std::vector<std::string>& cache_dirs);

std::filesystem::path cache_info_file(const std::filesystem::path& folder,
                                      const std::string& split);
std::filesystem::path cache_stats_file(const std::filesystem::path& folder,
                                       const std::string& split);
enum class CacheFormat { tfrecord, array_record };
std::string cache_records_file(const std::string& split, int64_t index, int64_t count,
                               CacheFormat format = CacheFormat::tfrecord);

/// What made a cache of ours: quintet.json beside seqio's files, which seqio does not look at.
struct CacheOrigin {
  std::string task;
  VocabularyRecords vocabularies;  // of the output features
};
CacheOrigin cache_origin(const std::string& task, const Features& features);
void write_cache_origin(const std::filesystem::path& folder, const CacheOrigin& origin);
/// Throws kData if the cache in `folder` is of another task, or if a feature that it holds as ids has
/// another vocabulary. Those that seqio wrote do not say.
void check_cache_origin(const std::filesystem::path& folder, const CacheOrigin& origin);

/// Reads a cache. open() throws kData: damaged or missing json, files missing, another number of
/// examples than stats say; reading: what TFExampleDataSource throws, and ids that a feature's
/// vocabulary does not have.
DataSourcePtr open_cache(const std::filesystem::path& folder, const Features& features,
                         OnBadExample on_bad_example = OnBadExample::fail);

}  // namespace quintet::data
