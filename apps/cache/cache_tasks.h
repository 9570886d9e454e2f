#pragma once
// seqio's cache_tasks_main without Beam: what `quintet cache` runs.

#include <string>
#include <vector>

#include "apps/flags/launch_flags.h"
#include "apps/flags/result_format.h"
#include "apps/process/ranks.h"
#include "data/cache/cache_writer.h"
#include "runtime/gin/command_line.h"

namespace quintet {

/// What `quintet cache` may be told beside gin bindings.
struct CacheFlags {
  LaunchFlags launch;
  RankFlags ranks;
  ResultFormat format{"text"};
  std::vector<std::string> tasks, excluded_tasks, other_cache_dirs;
  data::CacheOptions cache;
  std::string output_format = "tfrecord";
  bool preserve_random_access = false;
  bool overwrite = false, ignore_other_caches = false;
  int64_t base_seed = -1, memory_mib = 1024;
};

/// Caches the tasks that are chosen and not cached yet. All ranks call it and share the work;
/// `arguments`: of the command, which all ranks must have alike. Throws usage errors for regular
/// expressions and tasks that are none.
void cache_tasks(CacheFlags flags, const gin::CommandLine& command_line,
                 const std::string& arguments);

}  // namespace quintet
