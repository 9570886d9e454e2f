#include "data/task.h"

#include <algorithm>
#include <cctype>

#include "data/preprocessors/token_preprocessors.h"
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
          ExitCode::kData, value == nullptr || std::holds_alternative<Tokens>(*value),
          "{}: feature '{}' of task '{}' is not token ids after preprocessing; does the task "
          "tokenize it?",
          example.where(), name, task);
    }
    return true;
  });
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
}

std::shared_ptr<const Reader> Task::open(const std::string& split) const {
  const auto known = splits();
  QT_CHECK(std::find(known.begin(), known.end(), split) != known.end(),
           "task '{}' has no split '{}'; it has {}", name(), split, fmt::join(known, ", "));
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Reader> reader = readers_[split].lock();
  if (!reader) readers_[split] = reader = config_.source->open(split);
  return reader;
}

bool Task::has_end(const std::string& split) const { return open(split)->size().has_value(); }

Contents Task::contents(const std::string& split) const {
  const auto reader = open(split);
  return {reader->size().value_or(0), reader->files()};
}

std::shared_ptr<const ReadOrder> Task::read_order(const StreamOptions& options) const {
  return std::make_shared<ReadOrder>(
      open(options.split),
      ReadOptions{.shuffle = options.shuffle, .seed = options.seed, .epochs = options.epochs});
}

StreamPtr Task::raw_stream(const StreamOptions& options) const {
  return unit_stream(read_order(options), [](StreamPtr input) { return input; }, {});
}

StreamPtr Task::stream(const StreamOptions& options) const {
  const Context context{config_.output_features, options.sequence_length};
  const auto preprocess = [context, task = name(), steps = config_.preprocessors,
                           trim = options.trim_output_features](StreamPtr stream) {
    for (const PreprocessorPtr& step : steps) stream = step->apply(std::move(stream), context);
    stream = check_features(std::move(stream), context.output_features, task);
    return trim ? trim_output_features(std::move(stream), context) : std::move(stream);
  };
  int64_t joined = 1;
  for (const PreprocessorPtr& step : config_.preprocessors)
    joined = std::max(joined, step->examples_joined());
  return unit_stream(read_order(options), preprocess,
                     {.places = (kUnitPlaces + joined - 1) / joined * joined,
                      .runner = options.runner,
                      .share = options.share});
}

std::string Task::postprocess(const std::string& decoded, const Example& example,
                              bool is_target) const {
  return config_.postprocess_fn ? config_.postprocess_fn(decoded, example, is_target) : decoded;
}

void TaskRegistry::add(ProviderPtr provider) {
  QT_CHECK(provider != nullptr, "task registry: None is not a task");
  const std::string& name = provider->name();
  QT_CHECK(providers_.emplace(name, provider).second,
           "a task or mixture called '{}' is registered already; choose another name", name);
}

ProviderPtr TaskRegistry::get(const std::string& name) const {
  const auto found = providers_.find(name);
  if (found == providers_.end()) {
    const std::string hint = did_you_mean(name, names());
    fail(ExitCode::kUsage, "no task or mixture is called '{}'{}", name,
         hint.empty() ? fmt::format("; the known ones are {}", fmt::join(names(), ", ")) : hint);
  }
  return found->second;
}

std::vector<std::string> TaskRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, provider] : providers_) names.push_back(name);
  return names;
}

}  // namespace quintet::data
