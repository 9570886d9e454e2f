#include "data/cache/cache_writer.h"

#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/cache/cache_stats.h"
#include "data/cache/spill.h"
#include "data/examples/random.h"
#include "data/examples/tf_example.h"
#include "data/reading/read_order.h"
#include "data/sources/array_record/array_record_file.h"
#include "data/tasks/cache_folder.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/folder_lock.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/formats/tfrecord.h"
#include "runtime/base/thread_pool.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSpillExamples = int64_t{1} << 14;  // of the source
// What the seed's key is folded with.
constexpr uint32_t kPreprocessing = 11, kShuffling = 12;
const std::string kIndexWithinShard = std::string(kProvenance) + "index_within_shard";

/// Does work(i) for each i of [0, count) that is this rank's, on several threads; throws the first error
/// after all have stopped.
void in_parallel(const CacheOptions& options, int64_t count,
                 const std::function<void(int64_t)>& work) {
  const int64_t rank = options.peers.rank, size = options.peers.size;
  ThreadPool pool("to preprocess (--threads)", options.threads - 1);
  pool.for_each((count - rank + size - 1) / size, [&](int64_t i) { work(i * size + rank); });
}

/// What threads have done of a rank's share.
class Reports {
 public:
  Reports(const CacheOptions& options, std::string what, int64_t total)
      : options_(options),
        what_(std::move(what)),
        total_((total + options.peers.size - 1) / options.peers.size) {}
  void done(int64_t count) {
    const std::lock_guard lock(mutex_);
    done_ = std::min(done_ + count, total_);
    if (options_.peers.rank == 0 && options_.progress) options_.progress(what_, done_, total_);
  }

 private:
  const CacheOptions& options_;
  std::string what_;
  int64_t total_, done_ = 0;
  std::mutex mutex_;
};

/// One split on its way into a folder.
class SplitWriter {
 public:
  SplitWriter(const Task& task, const CacheOptions& options, fs::path folder, std::string split)
      : task_(task),
        options_(options),
        folder_(std::move(folder)),
        split_(std::move(split)),
        reader_(task.config().source->open(split_)) {
    QT_CHECK(reader_->size().has_value(), "task '{}': split '{}' has no end and cannot be cached",
             task.name(), split_);
    shards_ = task.config().source->num_shards(split_);
    chunks_ =
        options.add_provenance ? shards_ : (*reader_->size() + kSpillExamples - 1) / kSpillExamples;
    num_files_ = std::max(shards_, options.min_shards);
    if (options.max_shards > 0) num_files_ = std::min(num_files_, options.max_shards);
    num_files_ = std::max<int64_t>(1, num_files_);
  }

  int64_t write() {
    if (const fs::path done = cache_stats_file(folder_, split_); fs::exists(done)) {
      // Of a run that was stopped later, perhaps before it had removed this.
      if (options_.peers.rank == 0) remove_tree(spill_folder());
      return Json::read(done)["examples"].as_int();
    }
    Reports preprocessing(options_, task_.name() + " " + split_ + ": examples preprocessed",
                          *reader_->size());
    in_parallel(options_, chunks_, [&](int64_t chunk) {
      if (!fs::exists(stats_file(chunk))) preprocess(chunk);
      preprocessing.done(options_.add_provenance ? *reader_->size() / shards_ : kSpillExamples);
    });
    options_.peers.gather("");
    CacheStats stats;
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      stats.add(CacheStats::from_json(Json::read(stats_file(chunk))));
      spills_.emplace_back(chunk_path(chunk));
    }
    QT_CHECK_AS(
        ExitCode::kData, stats.examples() > 0,
        "task '{}': no example of split '{}' is left after preprocessing; an empty cache is of "
        "no use",
        task_.name(), split_);
    group_buckets();
    place_groups();
    if (options_.peers.rank == 0) make_files();
    options_.peers.gather("");
    Reports writing(options_, task_.name() + " " + split_ + ": ranges written",
                    std::ssize(groups_));
    in_parallel(options_, std::ssize(groups_), [&](int64_t group) {
      write_group(group);
      writing.done(1);
    });
    in_parallel(options_, num_files_, [&](int64_t file) {
      if (options_.format == CacheFormat::array_record)
        to_array_record(file);
      else
        File::open_write(record_file(file)).sync();
    });
    options_.peers.gather("");
    if (options_.peers.rank == 0) {
      atomic_write_file(cache_info_file(folder_, split_), stats.info_json(num_files_));
      atomic_write_file(cache_stats_file(folder_, split_), stats.stats_json());
      remove_tree(spill_folder());
    }
    options_.peers.gather("");
    return stats.examples();
  }

 private:
  struct Group {
    int64_t first_bucket, end_bucket, first_place;  // of its first example in the order of all
    std::vector<int64_t> offsets;                   // where it begins in each file
  };
  struct Item {
    SpillEntry entry;
    int64_t chunk;
  };

  fs::path spill_folder() const { return folder_ / ("spill." + split_); }
  fs::path chunk_path(int64_t chunk) const {
    return spill_folder() / fmt::format("chunk-{:08}", chunk);
  }
  fs::path stats_file(int64_t chunk) const { return chunk_path(chunk) += ".json"; }
  fs::path record_file(int64_t file) const {
    return folder_ / cache_records_file(split_, file, num_files_);
  }

  void preprocess(int64_t chunk) const {
    make_folders(spill_folder());
    const Key seed =
        fold_in(key_from_seed(options_.base_seed), crc32c(task_.name() + " " + split_));
    // Parts of a seed that differ by task: two tasks over one source must not draw alike.
    Key drawn = fold_in(seed, kPreprocessing);
    int64_t first = chunk * kSpillExamples, count = kSpillExamples;
    std::shared_ptr<const Reader> reader = reader_;
    if (options_.add_provenance) {  // an example's number is one within its shard
      reader = task_.config().source->open_shard(split_, {chunk, shards_});
      drawn = split_at(drawn, static_cast<uint64_t>(chunk));
      first = 0, count = *reader->size();
    }
    const auto order_of_source =
        std::make_shared<ReadOrder>(reader, ReadOptions{.seed = drawn.b, .epochs = 1});
    StreamPtr stream = place_stream(order_of_source, first, count);
    const PreprocessContext context{task_.output_features(), {}};
    for (const PreprocessorPtr& step : task_.config().preprocessors) {
      if (dynamic_cast<const CacheDatasetPlaceholder*>(step.get()) != nullptr) break;
      stream = step->apply(std::move(stream), context);
    }
    const Key order = split_at(fold_in(seed, kShuffling), static_cast<uint64_t>(chunk));
    const auto held = options_.memory_bytes / (4 * options_.threads);
    SpillWriter spill(chunk_path(chunk), static_cast<size_t>(held));
    CacheStats stats;
    const std::vector<Example::Item> origin =
        options_.add_provenance ? provenance(*reader, chunk) : std::vector<Example::Item>{};
    Example example;
    for (uint64_t i = 0; stream->next(example); ++i) {
      try {
        stats.add(example, task_.output_features(), options_.enable_char_counts);
      } catch (const Error& error) {
        fail(error.code(), "{}: {}", example.where(), error.what());
      }
      for (const auto& [name, value] : origin) example.set(name, value);
      if (options_.add_provenance) example.set(kIndexWithinShard, static_cast<int64_t>(i));
      const Key key = split_at(order, i);
      spill.add(uint64_t{key.a} << 32 | key.b, serialize_tf_example(example));
    }
    spill.finish();
    atomic_write_file(stats_file(chunk), stats.to_json().dump());  // says that the chunk is whole
  }

  /// What all examples of a shard have.
  std::vector<Example::Item> provenance(const Reader& shard, int64_t index) const {
    const std::vector<std::string> files = shard.files();
    const std::string prefix = kProvenance;
    std::vector<Example::Item> items = {
        {prefix + "task", task_.name()},
        {prefix + "source_shard", files.size() == 1 ? files.front() : split_},
        {prefix + "source_shard_index", index}};
    if (options_.base_seed != 0)
      items.emplace_back(prefix + "preprocessors_seed", options_.base_seed);
    return items;
  }

  /// Neighbouring buckets, as many as fit into a thread's share of the memory.
  void group_buckets() {
    int64_t records = 0, bytes = 0;
    for (const Spill& spill : spills_) {
      records += spill.before(kSpillBuckets);
      bytes += spill.bytes();
    }
    const int64_t most_bytes = options_.memory_bytes / (4 * options_.threads);
    const int64_t cost = bytes / std::max<int64_t>(1, records) + int64_t{sizeof(Item)};
    const int64_t most = std::max<int64_t>(1, most_bytes / cost);
    int64_t place = 0;
    groups_.push_back({0, 0, 0, {}});
    for (int64_t bucket = 0; bucket < kSpillBuckets; ++bucket) {
      int64_t count = 0;
      for (const Spill& spill : spills_) count += spill.before(bucket + 1) - spill.before(bucket);
      if (place + count - groups_.back().first_place > most && place > groups_.back().first_place)
        groups_.push_back({bucket, bucket, place, {}});
      groups_.back().end_bucket = bucket + 1;
      place += count;
    }
  }

  /// The examples of a group in their final order, with their records in `bytes` if it is given.
  std::vector<Item> order(const Group& group, std::string* bytes) const {
    std::vector<Item> items;
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      const Spill& spill = spills_[static_cast<size_t>(chunk)];
      auto entries = spill.entries(group.first_bucket, group.end_bucket);
      if (bytes != nullptr) spill.read(entries, *bytes);
      for (const SpillEntry& entry : entries) items.push_back({entry, chunk});
    }
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
      return std::tie(a.entry.key, a.chunk, a.entry.number) <
             std::tie(b.entry.key, b.chunk, b.entry.number);
    });
    return items;
  }

  size_t file_of(const Group& group, size_t i) const {
    return static_cast<size_t>((group.first_place + static_cast<int64_t>(i)) % num_files_);
  }

  /// Finds out where each group begins in each file: first the groups' sizes, then sums of them.
  void place_groups() {
    std::vector<std::vector<int64_t>> sizes(groups_.size());
    in_parallel(options_, std::ssize(groups_), [&](int64_t g) {
      const Group& group = groups_[static_cast<size_t>(g)];
      std::vector<int64_t>& bytes = sizes[static_cast<size_t>(g)];
      bytes.resize(static_cast<size_t>(num_files_));
      const auto items = order(group, nullptr);
      for (size_t i = 0; i < items.size(); ++i) bytes[file_of(group, i)] += items[i].entry.bytes;
    });
    const auto all = options_.peers.gather(nlohmann::json(sizes).dump());
    std::vector<int64_t> offsets(static_cast<size_t>(num_files_));
    std::vector<Json> of_ranks;
    for (const std::string& text : all) of_ranks.push_back(Json::parse(text, "sizes of a rank"));
    for (size_t g = 0; g < groups_.size(); ++g) {
      groups_[g].offsets = offsets;
      const auto bytes = of_ranks[g % all.size()][g].as_ints();
      for (size_t file = 0; file < offsets.size(); ++file) offsets[file] += bytes[file];
    }
    file_bytes_ = offsets;
  }

  void make_files() const {
    for (const std::string& name : names_in(folder_))
      if (name.starts_with(split_ + ".tfrecord-") || name.starts_with(split_ + ".array_record-"))
        remove_tree(folder_ / name);
    const int64_t needed = std::accumulate(file_bytes_.begin(), file_bytes_.end(), int64_t{0});
    const int64_t free = free_bytes(folder_);
    QT_CHECK_AS(
        ExitCode::kDisk, free < 0 || needed <= free,
        "{}: cannot write the cache: {} bytes needed, {} bytes free; free space and run again, "
        "what is preprocessed is kept",
        folder_.string(), needed, free);
    for (int64_t file = 0; file < num_files_; ++file) File::create_new(record_file(file));
  }

  void write_group(int64_t g) const {
    const Group& group = groups_[static_cast<size_t>(g)];
    std::string bytes;
    const auto items = order(group, &bytes);
    std::vector<std::string> parts(static_cast<size_t>(num_files_));
    for (size_t i = 0; i < items.size(); ++i) {
      const std::string_view record(bytes.data() + items[i].entry.offset, items[i].entry.bytes);
      std::string_view rest = record;
      next_tfrecord(rest, chunk_path(items[i].chunk).string());  // is what was spilled
      parts[file_of(group, i)] += record;
    }
    for (int64_t file = 0; file < num_files_; ++file) {
      const std::string& part = parts[static_cast<size_t>(file)];
      if (part.empty()) continue;
      File out = File::open_write(record_file(file));
      out.write_at(group.offsets[static_cast<size_t>(file)], std::as_bytes(std::span(part)));
      out.close_checked();
    }
  }

  /// The places of a compressed file's records are not known before it is written: a file is made of one of TFRecords.
  void to_array_record(int64_t file) const {
    const RecordFilePtr records = open_record_file(record_file(file), {});
    std::string buffer;
    int64_t i = 0;
    write_array_record(
        folder_ / cache_records_file(split_, file, num_files_, CacheFormat::array_record),
        options_.group_size > 0 ? options_.group_size : num_files_, [&](std::string& record) {
          if (i == records->size()) return false;
          record = records->read(i++, buffer);
          return true;
        });
    remove_tree(record_file(file));
  }

  const Task& task_;
  const CacheOptions& options_;
  fs::path folder_;
  std::string split_;
  std::shared_ptr<const Reader> reader_;
  int64_t shards_ = 0, chunks_ = 0, num_files_ = 0;
  std::vector<Spill> spills_;
  std::vector<Group> groups_;
  std::vector<int64_t> file_bytes_;
};

/// Beside the folder, which a finished cache leaves by its renaming.
FolderLock lock_cache(const fs::path& folder) {
  return FolderLock(folder.parent_path(), folder.filename().string() + ".LOCK");
}

/// What a run that goes on must have in common with the one that was stopped.
std::string plan_of(const Task& task, const CacheOptions& options) {
  const CacheOrigin origin = cache_origin(task.name(), task.output_features());
  nlohmann::json plan = {{"task", origin.task},
                         {"vocabularies", to_json(origin.vocabularies)},
                         {"base_seed", options.base_seed},
                         {"min_shards", options.min_shards},
                         {"max_shards", options.max_shards},
                         {"format", static_cast<int>(options.format)},
                         {"group_size", options.group_size},
                         {"char_counts", options.enable_char_counts},
                         {"provenance", options.add_provenance},
                         {"preprocessors", task.config().preprocessors.size()}};
  for (const std::string& split : task.splits())
    for (const std::string& file : task.config().source->open(split)->files())
      plan["files"][split].push_back(
          {file, fs::file_size(file), fs::last_write_time(file).time_since_epoch().count()});
  return plan.dump(2) + "\n";
}

}  // namespace

int64_t write_cache(const Task& task, const CacheOptions& options, bool overwrite) {
  QT_CHECK(
      task.supports_caching(),
      "task '{}' has no seqio.CacheDatasetPlaceholder among its preprocessors: nothing says up to "
      "where to cache it",
      task.name());
  const fs::path folder = cache_folder(options.output_cache_dir, task.name());
  const fs::path work = folder.string() + ".incomplete";
  std::optional<FolderLock> lock;
  if (options.peers.rank == 0) {
    lock.emplace(lock_cache(folder));
    const bool replaces = overwrite && is_there(folder / "COMPLETED");
    QT_CHECK_AS(ExitCode::kData, replaces || !is_there(folder), "{}: is there{}", folder.string(),
                is_there(folder / "COMPLETED")
                    ? "; --overwrite makes it again"
                    : ", but is no completed cache; remove it or choose another directory");
    const std::string plan = plan_of(task, options);
    if (is_there(work) &&
        (!fs::exists(work / "plan.json") || read_file(work / "plan.json") != plan))
      remove_tree(work);  // of other data, or of an older task of this name
    make_folders(work);
    remove_temporaries(work);
    atomic_write_file(work / "plan.json", plan);
  }
  options.peers.gather("");
  int64_t examples = 0;
  for (const std::string& split : task.splits())
    examples += SplitWriter(task, options, work, split).write();
  if (options.peers.rank == 0) {
    write_cache_origin(work, cache_origin(task.name(), task.output_features()));
    remove_tree(work / "plan.json");
    atomic_write_file(work / "COMPLETED", "tfrecord");  // whichever it is, as seqio does
    if (is_there(folder)) {
      const fs::path old = folder.string() + ".old";
      remove_tree(old);
      rename_path(folder, old);
      rename_path(work, folder);
      remove_tree(old);
    } else {
      rename_path(work, folder);
    }
    sync_folder(folder.parent_path());
  }
  options.peers.gather("");
  return examples;
}

void tidy_cache(const Task& task, const std::string& output_cache_dir) {
  const fs::path folder = cache_folder(output_cache_dir, task.name());
  if (!is_there(folder.string() + ".LOCK")) return;
  try {
    lock_cache(folder);
  } catch (const Error&) {
    // Another run is at work there, or it is another's directory.
  }
}

}  // namespace quintet::data
