#pragma once
// Makes seqio's offline cache of a task: preprocesses up to the cache point, shuffles all examples by a
// hash, deals them out to files by their place modulo the number of files. The result is a function of
// the task and the seed, whatever the number of threads and ranks; memory does not grow with the data; a
// run that was killed goes on where it was.
//
//   write_cache(task, {.output_cache_dir = "/data/cache", .threads = 8});
//
// Chunks of work are spans of the source. Each leaves a spill file (spill.h) and its statistics; then
// ranges of keys are put in order and written to their places in the files. All happens in
// FOLDER.incomplete, which is renamed at the end.

#include <functional>
#include <string>
#include <vector>

#include "data/examples/peers.h"
#include "data/tasks/cache_folder.h"
#include "data/tasks/task.h"

namespace quintet::data {

/// seqio.beam_utils.PROVENANCE_KEYS begin with it; info of a cache does not list them.
inline constexpr const char* kProvenance = "provenance/";

struct CacheOptions {
  std::string output_cache_dir;
  int64_t min_shards = 64,
          max_shards = 0;  // files: as many as the source's, within these; 0: no limit
  int64_t base_seed = 0;
  bool enable_char_counts = false;
  bool add_provenance = false;  // features provenance/* (kProvenance) in the records
  CacheFormat format = CacheFormat::tfrecord;
  int64_t group_size =
      0;  // records of an ArrayRecord's chunk; 0: the number of files, as seqio has it
  int threads = 1;
  int64_t memory_bytes = int64_t{1} << 30;  // of this process, for examples in flight
  Peers peers = {};                         // that make the cache together; they see the same files
  /// Called by rank 0 with how much of its share of a split is done; by one thread at a time.
  std::function<void(const std::string& what, int64_t done, int64_t total)> progress = {};
};

/// Number of examples written, over all splits. Throws kUsage: the task has no cache point or no end;
/// kData: as reading and preprocessing the task does, or something that is no cache lies in the way;
/// kDisk. Leaves nothing in the task's folder unless it is whole; a cache that is there is replaced at
/// the end, if asked.
int64_t write_cache(const Task& task, const CacheOptions& options, bool overwrite = false);

/// Removes what a killed run left beside a finished cache: its lock and its probe. Nothing, if a
/// live one has the lock or the folder cannot be written to.
void tidy_cache(const Task& task, const std::string& output_cache_dir);

}  // namespace quintet::data
