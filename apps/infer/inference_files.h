#pragma once
// The files of one task's inference: chunks and the place of the next one while it runs, one file
// at the end. Each appears whole or not at all. The first rank's alone.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "data/examples/data_source.h"
#include "runtime/base/files/folder_lock.h"

namespace quintet {

class InferenceFiles {
 public:
  struct Name {
    std::string task, mode, extension;
    data::ShardInfo shard;
    std::string origin;  // what decides the results
  };
  InferenceFiles(const std::filesystem::path& output_dir, Name name);

  /// The file of all answers, or the folder of chunks that are not merged.
  const std::filesystem::path& result(bool merged) const { return merged ? result_ : folder_; }
  /// Whether the result is there. What a run left that was killed just then is removed if `merged`. Throws a usage
  /// error if another checkpoint, adapter or data set gave it.
  bool is_complete(bool merged) const;
  /// Takes the folder for this process. The place after the last whole chunk, for parse_place;
  /// empty: there is none. Throws a usage error if another process has the folder, or another
  /// checkpoint or data set began it.
  std::string start();
  /// Number of the next chunk, and where the stream was before it.
  static std::pair<int64_t, data::Position> parse_place(const std::string& place);
  bool has_chunk(int64_t chunk) const;
  /// `write`: a chunk's file. `position`: of the stream after the chunk's examples.
  void write_chunk(int64_t chunk, const std::function<void(const std::filesystem::path&)>& write,
                   const data::Position& position) const;
  /// Joins the chunks to the result, if `merge`, by `own_merge` if there is one, and marks it complete.
  using Merge = std::function<void(const std::filesystem::path& result,
                                   const std::filesystem::path& chunks_folder)>;
  void complete(int64_t chunks, bool merge, const Merge& own_merge = {});

 private:
  std::filesystem::path chunk_path(int64_t chunk) const;
  void join(int64_t chunks) const;
  std::filesystem::path folder_, result_,
      origin_file_;  // the last is hidden: T5X's readers list folders
  std::string origin_;
  std::optional<FolderLock> lock_;
};

}  // namespace quintet
