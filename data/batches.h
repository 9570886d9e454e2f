#pragma once
// Batches of model features for training and evaluation, made by a background thread, and their
// place, so that a resumed run sees the batches the first one would have seen.
//
//   Batches batches(*registry.get("number_words"), config, converter);
//   while (auto batch = batches.next()) step(batch->features);
//   checkpoint.data_position = batches.position();     // after the last batch that was used
//   later.restore(checkpoint.data_position);

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/feature_converter.h"
#include "data/task.h"
#include "runtime/base/host_array.h"

namespace quintet::data {

/// t5x.utils.DatasetConfig.
struct DatasetConfig {
  std::string mixture_or_task_name;
  ProviderPtr mixture_or_task = {};  // given instead of a name
  Lengths task_feature_lengths;
  std::string split = "train";
  int64_t batch_size = 0;
  bool shuffle = false;
  std::optional<int64_t> seed = {};  // none: 0
  bool use_cached = false;
  bool pack = false;
  bool use_custom_packing_ops = false;
  bool use_memory_cache = true;
  bool trim_output_features = true;
};

/// The task or mixture that a configuration names or holds.
ProviderPtr find_provider(const TaskRegistry& registry, const DatasetConfig& config);

struct Batch {
  HostArrays features;  // int32 [batch_size, length], always full
  int64_t rows = 0;     // rows that hold examples; those after them are padding (all zero)
};

struct BatchOptions {
  std::optional<int64_t> epochs = {};  // none: for ever; 1 for an evaluation
  int64_t prefetch = 4;                // batches made ahead; 0: made when asked for, no thread
};

class Batches {
 public:
  /// Throws a usage error for a batch size or length below 1, or a feature without a length.
  Batches(const Provider& provider, const DatasetConfig& config, FeatureConverterPtr converter,
          BatchOptions options = {});
  /// Over examples in memory that are already preprocessed.
  Batches(std::vector<Example> examples, const DatasetConfig& config,
          FeatureConverterPtr converter);
  ~Batches();
  Batches(Batches&&) noexcept;
  Batches& operator=(Batches&&) noexcept;

  /// The next batch; none at the end. Rethrows what the background thread met.
  std::optional<Batch> next();
  /// JSON: where the next batch begins. Small, whatever the size of the data.
  std::string position() const;
  /// Goes to a position of a Batches made with the same arguments; throws kData if it is of
  /// another.
  void restore(std::string_view position);
  /// Model feature -> length.
  const Lengths& model_feature_lengths() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// All preprocessed examples of one pass over a split: what an evaluator feeds to the model
/// (through Batches) and compares with. At most `limit` of them.
std::vector<Example> evaluation_examples(const Provider& provider, const DatasetConfig& config,
                                         std::optional<int64_t> limit = {});

}  // namespace quintet::data
