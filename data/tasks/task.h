#pragma once
// Tasks and mixtures: what to read, how to turn it into features, how to judge predictions.
//
//   TaskRegistry registry;
//   register_builtin_tasks(registry);      // sources/number_words.h; tasks in gin: configurables.h
//   const auto provider = registry.get("number_to_words");
//   StreamPtr stream = provider->stream({.split = "train", .sequence_length = lengths});

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "data/examples/data_source.h"
#include "data/examples/preprocessor.h"
#include "data/metrics/metric.h"
#include "data/reading/contents.h"
#include "data/reading/work_chunks.h"

namespace quintet::data {

/// Examples that a mixture has drawn, by task.
using DrawnExamples = std::map<std::string, int64_t>;

struct StreamOptions {
  std::string split = "train";
  std::optional<Lengths> sequence_length = {};
  bool shuffle = false;
  int64_t seed = 0;
  std::optional<int64_t> epochs = {};  // none: for ever
  bool trim_output_features = true;
  bool use_cached = false;                           // for tasks that have a cache point
  std::vector<std::string> cache_dirs = {};          // where caches are looked for, in this order
  ShardInfo shard_info = {};                         // a part of the split, as the source cuts it
  OnBadExample on_bad_example = OnBadExample::fail;  // in caches; sources have their own
  std::shared_ptr<ChunkRunner> runner = {};   // makes chunks ahead; none: made when asked for
  double share = 1;                           // of the prefetch depth
  std::shared_ptr<DrawnExamples> drawn = {};  // what a mixture draws is added to these
};

/// A task or a mixture: something that gives preprocessed examples.
class Provider {
 public:
  virtual ~Provider() = default;
  virtual const std::string& name() const = 0;
  virtual const Features& output_features() const = 0;
  virtual std::vector<std::string> splits() const = 0;
  /// Whether one pass over a split comes to an end (it does unless its source generates).
  virtual bool has_end(const std::string& split) const = 0;
  /// What a split holds, so that a change between runs is noticed.
  virtual Contents contents(const StreamOptions& options) const = 0;
  /// Preprocessed examples with at least the output features, trimmed to sequence_length.
  virtual StreamPtr stream(const StreamOptions& options) const = 0;
  /// The tasks whose metrics an evaluation reports: itself, or a mixture's parts.
  virtual std::vector<const class Task*> tasks() const = 0;
};
using ProviderPtr = std::shared_ptr<const Provider>;

class Task final : public Provider {
 public:
  struct Config {
    std::string name;
    DataSourcePtr source;
    std::vector<PreprocessorPtr> preprocessors;
    Features output_features;
    std::vector<MetricFn> metric_fns = {};
    std::vector<MetricObject> metric_objs = {};
    PostprocessFn postprocess_fn = {};  // none: the decoded text itself
    /// Examples held to shuffle what preprocessors make of one; none: the task must not be shuffled.
    std::optional<int64_t> shuffle_buffer_size = kShuffleBufferSize;
    std::string defined_at = {};  // "task.gin:12"
  };
  static constexpr int64_t kShuffleBufferSize = 1000;  // seqio's
  /// Throws a usage error if the name has other characters than letters, digits, _ . : # - or /, and
  /// for a shuffle_buffer_size below 1.
  explicit Task(Config config);
  const std::string& name() const override { return config_.name; }
  const Features& output_features() const override { return config_.output_features; }
  std::vector<std::string> splits() const override { return config_.source->splits(); }
  bool has_end(const std::string& split) const override;
  Contents contents(const StreamOptions& options) const override;
  StreamPtr stream(const StreamOptions& options) const override;
  std::vector<const Task*> tasks() const override { return {this}; }

  const Config& config() const { return config_; }
  /// Whether a seqio.CacheDatasetPlaceholder says up to where the task can be cached.
  bool supports_caching() const { return cache_point() < config_.preprocessors.size(); }
  /// Where examples come from: the task's source, or its cache if one is asked for and the task
  /// supports it. Throws kData if there is none in the cache directories, or one of another task;
  /// kUsage if the task must be cached and no cache is asked for.
  DataSourcePtr source(const StreamOptions& options) const;

  /// Examples as the source gives them.
  StreamPtr raw_stream(const StreamOptions& options) const;
  const std::vector<MetricFn>& metric_fns() const { return config_.metric_fns; }
  const std::vector<MetricObject>& metric_objs() const { return config_.metric_objs; }
  /// Whether one of its metrics does.
  bool wants(ModelOutputType type) const;
  bool has_metrics() const { return !metric_fns().empty() || !metric_objs().empty(); }
  /// What a metric compares: of decoded text (targets and predictions alike).
  Answer postprocess(const Answer& decoded, const Example& example, bool is_target) const;

 private:
  bool must_be_cached() const;
  size_t cache_point() const;  // among the preprocessors; their number if there is none
  /// The stream in a random order, if it is shuffled and preprocessing by `preprocess` makes several
  /// examples of one: without that, the order of reading is a permutation of all already.
  StreamPtr shuffled(StreamPtr stream, const Preprocess& preprocess,
                     const std::shared_ptr<const ReadOrder>& order,
                     const StreamOptions& options) const;
  /// What is left to do to examples of source(options).
  std::vector<PreprocessorPtr> steps(const StreamOptions& options) const;
  std::shared_ptr<const Reader> open(const StreamOptions& options) const;
  std::shared_ptr<const ReadOrder> read_order(const StreamOptions& options) const;
  Config config_;
  mutable std::mutex mutex_;
  // By split, whether cached and shard; those that are in use.
  using ReaderKey = std::tuple<std::string, bool, int64_t, int64_t>;
  mutable std::map<ReaderKey, std::weak_ptr<const Reader>> readers_;
};

/// How often a part of a mixture is drawn, relative to the others: a number, or a function of the
/// part, which is called when the mixture is read (mixing_rates.h).
using MixtureRate =
    std::variant<double, std::function<double(const ProviderPtr&, const StreamOptions&)>>;

/// Tasks sampled in proportion to their rates; draw n of a mixture is a function of (seed, n). A
/// mixture in a mixture divides its rate among its tasks. Tasks without the split are left out. The
/// first task that ends is the mixture's end, as in seqio, or leaves its draws to the others.
class Mixture final : public Provider {
 public:
  using Part = std::pair<ProviderPtr, MixtureRate>;
  Mixture(std::string name, std::vector<Part> parts, bool stops_on_empty = true);
  const std::string& name() const override { return name_; }
  const Features& output_features() const override;
  std::vector<std::string> splits() const override;  // those that a part has
  bool has_end(const std::string& split) const override;
  Contents contents(const StreamOptions& options) const override;
  StreamPtr stream(const StreamOptions& options) const override;
  std::vector<const Task*> tasks() const override;
  const std::vector<Part>& parts() const { return parts_; }
  bool stops_on_empty() const { return stops_on_empty_; }
  /// The rate of each task, in the order of tasks(); those of mixtures in it included.
  std::vector<double> rates(const StreamOptions& options) const;

 private:
  /// Tasks that have the split and a rate above 0.
  std::vector<std::pair<const Task*, double>> drawn(const StreamOptions& options) const;
  std::string name_;
  std::vector<Part> parts_;
  bool stops_on_empty_;
};

/// Providers by name. Not global: an application makes one and passes it on.
class TaskRegistry {
 public:
  /// Throws a usage error if the name is taken.
  void add(ProviderPtr provider);
  /// A task that is built in: made when it is asked for, and hidden by one that is added under its
  /// name.
  using Make = std::function<ProviderPtr(const TaskRegistry& registry)>;
  void add(std::string name, Make make, const char* type = "Task");
  /// Throws a usage error that names the nearest known task.
  ProviderPtr get(const std::string& name) const;
  bool has(const std::string& name) const {
    return providers_.contains(name) || built_in_.contains(name);
  }
  std::vector<std::string> names() const;
  /// What is added from now on is defined there, "task.gin:12".
  void set_place(std::string place) { place_ = std::move(place); }
  /// By name; of those that are not made yet, too.
  struct Registration {
    std::string type, place;  // "Task" or "Mixture"
  };
  const std::map<std::string, Registration>& registrations() const { return registrations_; }
  /// What is added from now on is the configuration's; and the names of that, in order.
  void begin_configured() { in_configuration_ = true; }
  const std::vector<std::string>& configured() const { return configured_; }

 private:
  bool in_configuration_ = false;
  std::vector<std::string> configured_;
  std::string place_ = "built in";
  std::map<std::string, Registration> registrations_;
  mutable std::map<std::string, ProviderPtr> providers_;
  std::map<std::string, Make> built_in_;
};

/// number_to_words, words_to_number, number_words (both directions) and the same over 0..999,999
/// with the suffix "_6digits". See data/sources/number_words.h.
void register_builtin_tasks(TaskRegistry& registry);

}  // namespace quintet::data
