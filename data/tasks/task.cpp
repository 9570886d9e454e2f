#include "data/tasks/task.h"

#include <algorithm>
#include <cctype>

#include "data/preprocessors/token_preprocessors.h"
#include "data/reading/shuffle_buffer.h"
#include "data/tasks/cache_folder.h"
#include "runtime/base/check.h"
#include "runtime/base/nearest.h"

namespace quintet::data {
namespace {

void check_name(const std::string& name) {
  const bool valid = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("_.:#-/").find(static_cast<char>(c)) != std::string_view::npos;
  });
  QT_CHECK(valid, "task or mixture name '{}': expected letters, digits and _ . : # - / only", name);
}

/// After the last preprocessor: the required features are there, as ids.
StreamPtr check_features(StreamPtr input, const Features& features, const std::string& task) {
  return map_stream(std::move(input), [features, task](Example& example) {
    for (const auto& [name, feature] : features) {
      const Value* value = example.find(name);
      QT_CHECK_AS(ExitCode::kData, value != nullptr || !feature.required,
                  "{}: task '{}' gives no feature '{}' after preprocessing; the example is {}",
                  example.where(), task, name, to_string(example));
      QT_CHECK_AS(
          ExitCode::kData,
          value == nullptr || feature.type == FeatureType::string ||
              !std::holds_alternative<std::string>(*value),
          "{}: feature '{}' of task '{}' is not token ids after preprocessing; does the task "
          "tokenize it?",
          example.where(), name, task);
      if (value != nullptr) check_type(example, name, feature.type, feature.rank);
    }
    return true;
  });
}

/// Only stages that hold examples back, of those that they made of one or of a group, add to the place
/// of the stream that they read.
bool makes_several_of_one(const Preprocess& preprocess,
                          const std::shared_ptr<const ReadOrder>& order) {
  Position raw, preprocessed;
  place_stream(order, 0, 0)->save(raw);
  preprocess(place_stream(order, 0, 0))->save(preprocessed);
  return preprocessed.size() > raw.size();
}

}  // namespace

Task::Task(Config config) : config_(std::move(config)) {
  check_name(config_.name);
  QT_CHECK(config_.source != nullptr, "task '{}': source is required", config_.name);
  QT_CHECK(!config_.output_features.empty(), "task '{}': output_features must not be empty",
           config_.name);
  for (const auto& [name, feature] : config_.output_features)
    QT_CHECK(feature.vocabulary != nullptr, "task '{}': feature '{}' has no vocabulary",
             config_.name, name);
  QT_CHECK(config_.shuffle_buffer_size.value_or(1) > 0,
           "task '{}': shuffle_buffer_size is {}, expected at least 1, or None to forbid shuffling",
           config_.name, *config_.shuffle_buffer_size);
}

bool Task::wants(ModelOutputType type) const {
  return std::any_of(metric_fns().begin(), metric_fns().end(),
                     [&](const MetricFn& m) { return m.model_output_type() == type; }) ||
         std::any_of(metric_objs().begin(), metric_objs().end(),
                     [&](const MetricObject& m) { return m.model_output_type == type; });
}

size_t Task::cache_point() const {
  const auto& steps = config_.preprocessors;
  const auto found = std::find_if(steps.begin(), steps.end(), [](const PreprocessorPtr& step) {
    return dynamic_cast<const CacheDatasetPlaceholder*>(step.get()) != nullptr;
  });
  return static_cast<size_t>(found - steps.begin());
}

DataSourcePtr Task::source(const StreamOptions& options) const {
  if (!supports_caching()) {
    if (options.use_cached)
      fmt::print(stderr, "task '{}' has no cache point; it is preprocessed as it is read\n",
                 name());
    return config_.source;
  }
  QT_CHECK(options.use_cached || !must_be_cached(),
           "task '{}' must be cached (its CacheDatasetPlaceholder says required = True): set "
           "use_cached = True",
           name());
  if (!options.use_cached) return config_.source;
  const auto folder = find_cache(name(), options.cache_dirs);
  QT_CHECK_AS(ExitCode::kData, folder.has_value(),
              "task '{}' is not cached in {}; make it with 'quintet cache --tasks={} "
              "--output_cache_dir=DIR', and name DIR with --seqio_additional_cache_dirs",
              name(),
              options.cache_dirs.empty() ? "any directory (none is given)"
                                         : fmt::format("{}", fmt::join(options.cache_dirs, ", ")),
              name());
  check_cache_origin(*folder, cache_origin(name(), output_features()));
  return open_cache(*folder, output_features(), options.on_bad_example);
}

std::vector<PreprocessorPtr> Task::steps(const StreamOptions& options) const {
  const auto& all = config_.preprocessors;
  if (!options.use_cached || !supports_caching()) return all;
  return {all.begin() + static_cast<std::ptrdiff_t>(cache_point()), all.end()};
}

std::shared_ptr<const Reader> Task::open(const StreamOptions& options) const {
  const bool is_cached = options.use_cached && supports_caching();
  const std::lock_guard lock(mutex_);
  const ShardInfo& shard = options.shard_info;
  auto& known_reader = readers_[{options.split, is_cached, shard.index, shard.num_shards}];
  std::shared_ptr<const Reader> reader = known_reader.lock();
  if (reader) return reader;
  const DataSourcePtr from = source(options);
  const auto known = from->splits();
  QT_CHECK(std::find(known.begin(), known.end(), options.split) != known.end(),
           "task '{}' has no split '{}'; it has {}", name(), options.split, fmt::join(known, ", "));
  known_reader = reader =
      shard.num_shards > 1 ? from->open_shard(options.split, shard) : from->open(options.split);
  return reader;
}

bool Task::must_be_cached() const {
  return supports_caching() &&
         static_cast<const CacheDatasetPlaceholder&>(*config_.preprocessors[cache_point()])
             .required;
}

bool Task::has_end(const std::string& split) const {
  return must_be_cached() || open({.split = split})->size().has_value();
}

Contents Task::contents(const StreamOptions& options) const {
  const auto reader = open(options);
  return {reader->size().value_or(0), reader->files()};
}

std::shared_ptr<const ReadOrder> Task::read_order(const StreamOptions& options) const {
  return std::make_shared<ReadOrder>(
      open(options),
      ReadOptions{.shuffle = options.shuffle, .seed = options.seed, .epochs = options.epochs});
}

StreamPtr Task::raw_stream(const StreamOptions& options) const {
  return chunk_stream(read_order(options), [](StreamPtr input) { return input; }, {});
}

StreamPtr Task::stream(const StreamOptions& options) const {
  const PreprocessContext context{config_.output_features, options.sequence_length};
  const auto preprocess = [context, task = name(), steps = steps(options),
                           trim = options.trim_output_features](StreamPtr stream) {
    for (const PreprocessorPtr& step : steps) stream = step->apply(std::move(stream), context);
    stream = check_features(std::move(stream), context.output_features, task);
    return trim ? trim_output_features(std::move(stream), context) : std::move(stream);
  };
  int64_t joined = 1;
  for (const PreprocessorPtr& step : steps(options))
    joined = std::max(joined, step->examples_joined());
  const auto order = read_order(options);
  StreamPtr stream = chunk_stream(order, preprocess,
                                  {.examples = (kChunkExamples + joined - 1) / joined * joined,
                                   .runner = options.runner,
                                   .share = options.share});
  return shuffled(std::move(stream), preprocess, order, options);
}

StreamPtr Task::shuffled(StreamPtr stream, const Preprocess& preprocess,
                         const std::shared_ptr<const ReadOrder>& order,
                         const StreamOptions& options) const {
  if (!options.shuffle) return stream;
  const std::optional<int64_t> buffer = config_.shuffle_buffer_size;
  QT_CHECK(buffer.has_value() || config_.source->performs_internal_shuffling(),
           "task '{}': shuffling is forbidden, as its shuffle_buffer_size is None; set shuffle = "
           "False",
           name());
  if (buffer.value_or(1) == 1 || !makes_several_of_one(preprocess, order)) return stream;
  constexpr uint32_t kShuffle = 0x5bffe1;  // no number of an epoch
  return shuffle_stream(std::move(stream), *buffer, fold_in(key_from_seed(options.seed), kShuffle));
}

Answer Task::postprocess(const Answer& decoded, const Example& example, bool is_target) const {
  return config_.postprocess_fn ? config_.postprocess_fn(decoded, example, is_target) : decoded;
}

void TaskRegistry::add(ProviderPtr provider) {
  QT_CHECK(provider != nullptr, "task registry: None is not a task");
  const std::string& name = provider->name();
  QT_CHECK(providers_.emplace(name, provider).second,
           "a task or mixture called '{}' is registered already; choose another name", name);
  const bool is_task = dynamic_cast<const Task*>(provider.get()) != nullptr;
  registrations_[name] = {is_task ? "Task" : "Mixture", place_};
  if (in_configuration_) configured_.push_back(name);
}

void TaskRegistry::add(std::string name, Make make, const char* type) {
  QT_CHECK(!has(name), "a task or mixture called '{}' is registered already", name);
  registrations_[name] = {type, place_};
  built_in_.emplace(std::move(name), std::move(make));
}

ProviderPtr TaskRegistry::get(const std::string& name) const {
  auto found = providers_.find(name);
  if (const auto made = built_in_.find(name); found == providers_.end() && made != built_in_.end())
    found = providers_.emplace(name, made->second(*this)).first;
  if (found == providers_.end()) {
    const std::string hint = did_you_mean(name, names());
    fail(ExitCode::kUsage, "no task or mixture is called '{}'{}", name,
         hint.empty() ? "; 'quintet data list' prints all, those of --gin_file too" : hint);
  }
  return found->second;
}

std::vector<std::string> TaskRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, provider] : providers_) names.push_back(name);
  for (const auto& [name, make] : built_in_)
    if (!providers_.contains(name)) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace quintet::data
