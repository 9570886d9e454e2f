#include "data/tasks/derived_tasks.h"

#include <algorithm>
#include <set>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

/// A step of a fully cached task: its lengths are those of the cache, whoever reads it.
struct WithLengths final : Preprocessor {
  PreprocessorPtr step;
  Lengths lengths;
  int64_t examples_joined() const override { return step->examples_joined(); }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override {
    PreprocessContext fixed = context;
    fixed.sequence_length = lengths;
    return step->apply(std::move(input), fixed);
  }
};

std::string text_of(Lengths lengths) {
  std::string text;
  for (const auto& [name, length] : lengths)
    text += fmt::format("{}'{}': {}", text.empty() ? "" : ", ", name, length.text());
  return "{" + text + "}";
}

/// After the cache: no other lengths are asked for.
struct ValidateLengths final : Preprocessor {
  std::string task;
  Lengths lengths;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override {
    const auto& asked = context.sequence_length;
    QT_CHECK(
        !asked || std::is_permutation(asked->begin(), asked->end(), lengths.begin(), lengths.end()),
        "task '{}' is cached for the lengths {}; task_feature_lengths is {}", task,
        text_of(lengths), text_of(asked.value_or(Lengths{})));
    return input;
  }
};

bool is_cache_placeholder(const PreprocessorPtr& step) {
  return dynamic_cast<const CacheDatasetPlaceholder*>(step.get()) != nullptr;
}

void add_placeholder(std::vector<PreprocessorPtr>& steps) {
  if (std::any_of(steps.begin(), steps.end(), is_cache_placeholder)) return;
  const auto at = std::find_if(steps.begin(), steps.end(),
                               [](const PreprocessorPtr& step) { return step->uses_lengths(); });
  steps.insert(at, std::make_shared<CacheDatasetPlaceholder>());
}

void check_new_features(const Features& old_features, const Features& features,
                        const std::string& task) {
  std::set<std::string> old_names, names;
  for (const auto& [name, feature] : old_features) old_names.insert(name);
  for (const auto& [name, feature] : features) names.insert(name);
  QT_CHECK(names == old_names,
           "task '{}': new_output_features are {}; those of the original are {}", task,
           fmt::join(names, ", "), fmt::join(old_names, ", "));
  for (const auto& [name, old_feature] : old_features) {
    const Feature& feature = *find_feature(features, name);
    QT_CHECK(feature.type == old_feature.type && feature.rank == old_feature.rank,
             "task '{}': feature '{}' of new_output_features has another dtype or rank than the "
             "original's; only vocabulary, add_eos and required may differ",
             task, name);
  }
}

const Mixture& mixture_of(const Provider& provider) {
  const auto* mixture = dynamic_cast<const Mixture*>(&provider);
  QT_CHECK(mixture != nullptr, "'{}' is a task; a mixture is needed", provider.name());
  return *mixture;
}

}  // namespace

Derived derive(const ProviderPtr& original, const std::string& name, const ChangeTask& change,
               const PartName& part_name) {
  if (const auto* task = dynamic_cast<const Task*>(original.get())) {
    Task::Config config = task->config();
    config.name = name;
    change(config);
    return {std::make_shared<const Task>(std::move(config)), {}};
  }
  const Mixture& mixture = mixture_of(*original);
  Derived all;
  std::vector<Mixture::Part> parts;
  for (const auto& [part, rate] : mixture.parts()) {
    Derived derived = derive(part, part_name ? part_name(part->name()) : name + "." + part->name(),
                             change, part_name);
    parts.emplace_back(derived.made, rate);
    all.parts.insert(all.parts.end(), derived.parts.begin(), derived.parts.end());
    all.parts.push_back(derived.made);
  }
  all.made = std::make_shared<const Mixture>(name, std::move(parts), mixture.stops_on_empty());
  return all;
}

ChangeTask new_vocabulary(NewVocabulary options) {
  QT_CHECK((options.vocabulary != nullptr) == options.output_features.empty(),
           "mixture_or_task_with_new_vocab: bind one of new_vocab and new_output_features");
  return [options](Task::Config& task) {
    if (options.vocabulary) {
      for (auto& [name, feature] : task.output_features) feature.vocabulary = options.vocabulary;
    } else {
      if (options.validate_features)
        check_new_features(task.output_features, options.output_features, task.name);
      task.output_features = options.output_features;
    }
    if (options.add_cache_placeholder) add_placeholder(task.preprocessors);
  };
}

ChangeTask truncated_data(TruncatedDataSource::Sizes split_sizes) {
  return [split_sizes](Task::Config& task) {
    task.source = std::make_shared<TruncatedDataSource>(task.source, split_sizes);
  };
}

ProviderPtr without_parts_missing(const ProviderPtr& mixture, const std::string& split,
                                  const std::string& name) {
  const Mixture& original = mixture_of(*mixture);
  std::vector<Mixture::Part> parts;
  for (const auto& [part, rate] : original.parts()) {
    const auto splits = part->splits();
    if (std::find(splits.begin(), splits.end(), split) != splits.end())
      parts.emplace_back(part, rate);
  }
  QT_CHECK(!parts.empty(), "mixture '{}': no task of '{}' has a split '{}'; they have {}", name,
           original.name(), split, fmt::join(original.splits(), ", "));
  return std::make_shared<const Mixture>(name, std::move(parts), original.stops_on_empty());
}

ChangeTask fully_cached(Lengths lengths, bool disallow_shuffling) {
  return [lengths, disallow_shuffling](Task::Config& task) {
    std::vector<PreprocessorPtr> steps;
    for (const PreprocessorPtr& step : task.preprocessors) {
      if (is_cache_placeholder(step)) continue;
      auto fixed = std::make_shared<WithLengths>();
      fixed->step = step;
      fixed->lengths = lengths;
      steps.push_back(std::move(fixed));
    }
    auto placeholder = std::make_shared<CacheDatasetPlaceholder>();
    placeholder->required = true;
    steps.push_back(std::move(placeholder));
    auto validate = std::make_shared<ValidateLengths>();
    validate->task = task.name;
    validate->lengths = lengths;
    steps.push_back(std::move(validate));
    task.preprocessors = std::move(steps);
    task.shuffle_buffer_size =
        disallow_shuffling ? std::nullopt : std::optional(Task::kShuffleBufferSize);
  };
}

std::string fully_cached_name(const std::string& name, const Lengths& lengths) {
  QT_CHECK(!lengths.empty(), "fully cached '{}': sequence_length is empty", name);
  const auto differ = [&](size_t size) {
    std::set<std::string> beginnings;
    for (const auto& [feature, length] : lengths) beginnings.insert(feature.substr(0, size));
    return beginnings.size() == lengths.size();
  };
  size_t size = 0;
  while (!differ(size)) ++size;
  std::string made = name;
  for (const auto& [feature, length] : lengths)
    made += fmt::format("_{}{}", feature.substr(0, size), length);
  return made;
}

}  // namespace quintet::data
