#pragma once
// Batches of model features for training and evaluation, made by a background thread, and their
// place, so that a resumed run sees the batches the first one would have seen.
//
//   Batches batches(*registry.get("number_words"), config, converter);
//   while (auto batch = batches.next()) step(batch->features);
//   checkpoint.data_position = batches.position();     // after the last batch that was used
//   later.restore(checkpoint.data_position);

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/converters/feature_converter.h"
#include "data/tasks/task.h"
#include "runtime/base/host_array.h"

namespace quintet::data {

/// t5x.utils.DatasetConfig.
struct DatasetConfig {
  std::string mixture_or_task_name;
  ProviderPtr mixture_or_task = {};  // given instead of a name
  Lengths task_feature_lengths;      // none: the longest of the data set, in an evaluation
  std::string lengths_where = "utils.DatasetConfig.task_feature_lengths";  // for messages
  std::string split = "train";
  int64_t batch_size = 0;
  bool shuffle = false;
  std::optional<int64_t> seed = {};  // none: 0
  bool use_cached = false;
  std::vector<std::string> cache_dirs = {};          // --seqio_additional_cache_dirs
  OnBadExample on_bad_example = OnBadExample::fail;  // in caches; sources have their own
  bool pack = false;
  bool use_custom_packing_ops = false;  // pack by best fit, denser than seqio's greedy packing
  bool trim_output_features = true;
  // Quintet's own.
  /// Parts of the examples that are packed each for itself, so that data ranks pack different parts: batch n
  /// has rows of part n modulo their number. Batches depend on it, and on no number of ranks.
  int64_t virtual_shards = 1;
  std::vector<std::pair<int64_t, int64_t>> skip_batches =
      {};                   // first and last of ranges that are left out
  int64_t start_batch = 0;  // that a new run begins with
  bool strict_data =
      false;  // files that changed since a position was saved: an error, not a warning
};

/// How a data set is packed: pack, and best fit where use_custom_packing_ops asks for denser rows.
ConverterOptions converter_options(const DatasetConfig& config);

/// "120-140,200": batches 120 to 140 and 200. Throws a usage error for anything else.
std::vector<std::pair<int64_t, int64_t>> parse_batch_ranges(const std::string& text);

/// The task or mixture that a configuration names or holds.
ProviderPtr find_provider(const TaskRegistry& registry, const DatasetConfig& config);

struct Batch {
  HostArrays features;  // int32 or float32 [batch_size / shards, length, ...], always full
  int64_t rows = 0;     // rows that hold examples; in a microbatch, those after them are all zero
  /// Examples of the tasks of a mixture that were drawn to make it; of a task alone, and by data ranks, none.
  DrawnExamples drawn = {};
};

/// The rows of every global batch that one data shard gets: part `index` of `count` equal parts of
/// each microbatch.
struct Shard {
  int64_t index = 0, count = 1, microbatches = 1;
  /// How many of its rows a batch of so many has in a row: its part of a microbatch.
  int64_t run(int64_t batch_size) const { return batch_size / (count * microbatches); }
};

struct BatchOptions {
  std::optional<int64_t> epochs = {};  // none: for ever; 1 for an evaluation
  bool repeat_rows = false;  // after the last row comes the first again, in the same batch
  int64_t prefetch = 4;      // batches made ahead; 0: made when asked for, no thread
  int threads = 0;           // that preprocess, if prefetch > 0; 0: by the machine
  Shard shard = {};
  /// Only every count-th batch is made, from number `index` of those after a restore on; of several virtual
  /// shards only those that these batches are of are read.
  Shard batch_shard = {};
  std::shared_ptr<ChunkRunner> runner = {};  // instead of threads
  double timeout_seconds =
      300;  // of waiting for another rank's part of a batch before the run ends
  std::filesystem::path index_file =
      {};  // where seek() keeps what it finds; empty: in the user's cache folder
};

/// What a training loop draws from: this process's own Batches, or data ranks (service/client.h).
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// The next batch; none at the end.
  virtual std::optional<Batch> next() = 0;
  /// The place after the last batch that next() gave, as JSON.
  virtual std::string position() const = 0;
  /// Goes to a position of the same data set.
  virtual void restore(std::string_view position) = 0;
};

/// Where a run is that takes batches in turns from `makers` Batches, each of which makes its part (BatchOptions::
/// batch_shard): `before`, and what the one that made the newest batch says.
std::string joined_position(const std::string& before, const std::string& of_maker, int64_t makers);

class Batches final : public BatchSource {
 public:
  /// Throws a usage error for a batch size or length below 1, a batch size that the shards and their
  /// microbatches do not divide, a feature without a length, and virtual shards of an evaluation, that the makers of
  /// batches do not divide, or with skip_batches and several makers.
  Batches(const Provider& provider, const DatasetConfig& config, FeatureConverterPtr converter,
          BatchOptions options = {});
  /// Over examples in memory that are already preprocessed.
  Batches(std::vector<Example> examples, const DatasetConfig& config,
          FeatureConverterPtr converter);
  ~Batches() override;
  Batches(Batches&&) noexcept;
  Batches& operator=(Batches&&) noexcept;

  /// The next batch; none at the end. Rethrows what the background thread met.
  std::optional<Batch> next() override;
  /// JSON: where the next batch begins. Small, whatever the size of the data.
  std::string position() const override;
  /// Goes to a position of a Batches made with the same arguments, but for the shard, threads and
  /// skip_batches; throws kData if it is of another. Files that have changed are warned of
  /// (strict_data: kData).
  void restore(std::string_view position) override;
  /// Goes to batch number `batch`. The first time it passes over the batches before it, which takes
  /// their preprocessing, and keeps places among them; later, it begins at the nearest. Throws
  /// kData if the data ends before.
  void seek(int64_t batch);
  /// Model feature -> length.
  const Lengths& model_feature_lengths() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Preprocessed examples of one pass over a part of a split, in order, made by `runner`, or by
/// several threads.
StreamPtr evaluation_stream(const Provider& provider, const DatasetConfig& config,
                            const ShardInfo& shard = {}, std::shared_ptr<ChunkRunner> runner = {});

/// All preprocessed examples of one pass over a split: what an evaluator feeds to the model
/// (through Batches) and compares with. At most `limit` of them.
std::vector<Example> evaluation_examples(const Provider& provider, const DatasetConfig& config,
                                         std::optional<int64_t> limit = {});

}  // namespace quintet::data
