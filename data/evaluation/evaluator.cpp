#include "data/evaluation/evaluator.h"

#include <algorithm>

#include "data/evaluation/model_outputs.h"
#include "data/examples/trim.h"
#include "runtime/base/check.h"

namespace quintet::data {

struct Evaluator::TaskSet {
  const Task* task = nullptr;
  std::vector<Example> examples;
  Answers targets;
};

namespace {

/// Those that have the split and a metric.
std::vector<const Task*> tasks_to_evaluate(const Provider& provider, const std::string& split) {
  std::vector<const Task*> tasks;
  for (const Task* task : provider.tasks()) {
    const auto splits = task->splits();
    const bool has_split = std::find(splits.begin(), splits.end(), split) != splits.end();
    if (has_split && task->has_metrics())
      tasks.push_back(task);
    else
      fmt::print(stderr, "task '{}' has no {}: it is not evaluated\n", task->name(),
                 has_split ? "metric" : "split '" + split + "'");
  }
  return tasks;
}

/// Lengths that no example exceeds.
void measure(const std::vector<Example>& examples, const Features& features, Lengths& longest) {
  for (const auto& [name, feature] : features) {
    auto found = std::find_if(longest.begin(), longest.end(),
                              [&](const auto& length) { return length.first == name; });
    if (found == longest.end()) found = longest.insert(found, {name, 1});
    for (const Example& example : examples)
      if (const Value* value = example.find(name))
        found->second = std::max(found->second.first, length_of(*value));
  }
}

const Vocabulary& target_vocabulary(const Task& task, const std::string& name) {
  const Feature* feature = find_feature(task.output_features(), name);
  QT_CHECK(feature != nullptr, "seqio.Evaluator.target_field_name: task '{}' has no feature '{}'",
           task.name(), name);
  return *feature->vocabulary;
}

int64_t target_length(const Batch& batch) {
  for (const auto& [name, array] : batch.features)
    if (name.ends_with("_target_tokens")) return array.shape[1];
  return 0;
}

template <typename T>
void append(std::vector<T>& all, std::vector<T>&& some) {
  all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
}

void compute_metrics(TaskOutputs& outputs, const std::string& target_field_name) {
  const Task& task = *outputs.task;
  const auto add = [&](const auto& values_of) {
    MetricValues values;
    try {
      values = values_of();
    } catch (const Error& error) {
      fail(error.code(), "evaluation of task '{}': {}", task.name(), error.what());
    }
    for (const auto& [name, value] : values)
      QT_CHECK(outputs.metrics.emplace(name, value).second,
               "task '{}': two of its metrics give a value '{}'; drop one of metric_fns and "
               "metric_objs",
               task.name(), name);
  };
  const ModelOutput output{.inputs = *outputs.examples,
                           .features = task.output_features(),
                           .target_field_name = target_field_name,
                           .tokens = outputs.tokens,
                           .outputs = outputs.outputs,
                           .scores = outputs.scores,
                           .aux_values = outputs.aux_values,
                           .target_length = outputs.target_length};
  // Each metric compares targets of its own postprocessor. seqio's hands those of the first on to all that follow.
  for (const MetricObject& metric : task.metric_objs()) add([&] { return metric.compute(output); });
  for (const MetricFn& metric : task.metric_fns())
    add([&] {
      return metric(*outputs.targets, outputs.predictions, outputs.scores, outputs.aux_values);
    });
}

}  // namespace

std::string feature_text(const Example& example, const Features& features,
                         const std::string& name) {
  if (const auto* value = example.find(name + "_pretokenized"))
    if (const auto* text = std::get_if<std::string>(value)) return *text;
  const Feature* feature = find_feature(features, name);
  if (feature == nullptr || !example.has(name)) return "";
  return feature->vocabulary->decode(example.tokens(name));
}

Evaluator::Evaluator(const Provider& provider, const DatasetConfig& dataset,
                     const ConverterOf& converter_of, const EvaluatorOptions& options)
    : target_field_name_(options.target_field_name),
      peers_(options.peers),
      progress_(options.progress),
      dataset_(dataset) {
  QT_CHECK(!dataset.pack,
           "{}: an evaluation set that is decoded cannot be packed; bind pack = False",
           provider.name());
  dataset_.shuffle |= options.shuffle;
  Lengths longest;
  for (const Task* task : tasks_to_evaluate(provider, dataset.split)) {
    target_vocabulary(*task, target_field_name_);
    auto set = std::make_unique<TaskSet>();
    set->task = task;
    set->examples = evaluation_examples(*task, dataset_, options.num_examples);
    measure(set->examples, task->output_features(), longest);
    for (const Example& example : set->examples)
      set->targets.push_back(task->postprocess(
          feature_text(example, task->output_features(), target_field_name_), example, true));
    sets_.push_back(std::move(set));
  }
  for (const auto& [name, length] : longest)
    if (!find_length(dataset_.task_feature_lengths, name))
      dataset_.task_feature_lengths.emplace_back(name, length);
  if (!sets_.empty()) converter_ = converter_of(dataset_.task_feature_lengths);
}

Evaluator::~Evaluator() = default;

std::vector<const Task*> Evaluator::tasks() const {
  std::vector<const Task*> tasks;
  for (const auto& set : sets_) tasks.push_back(set->task);
  return tasks;
}

bool Evaluator::run_model(const TaskSet& set, const ModelFns& model,
                          const std::function<bool()>& stop, TaskOutputs& outputs) const {
  const bool wants_scores = set.task->wants(ModelOutputType::score);
  const bool wants_aux = set.task->wants(ModelOutputType::prediction_with_aux);
  const bool wants_predictions = wants_aux || set.task->wants(ModelOutputType::prediction);
  const Vocabulary& vocabulary = target_vocabulary(*set.task, target_field_name_);
  Batches batches(set.examples, dataset_, converter_);
  ModelOutputs own;
  const int64_t total = std::ssize(set.examples);
  int64_t done = 0;
  for (int64_t rank = 0; auto batch = batches.next(); rank = (rank + 1) % peers_.size) {
    if (rank == 0 && stop()) return false;
    if (progress_ && rank == 0) progress_(*set.task, done, total);
    done += batch->rows;
    outputs.target_length = target_length(*batch);
    if (rank != peers_.rank) continue;
    if (wants_predictions) own.predictions.push_back(model.predict(*batch));
    if (wants_predictions && !wants_aux) own.predictions.back().aux_values.clear();
    if (wants_scores) own.scores.push_back(model.score(*batch));
  }
  ModelOutputs all = gather(std::move(own), peers_);
  if (progress_) progress_(*set.task, total, total);
  for (Predictions& batch : all.predictions) {
    for (const Tokens& tokens : batch.tokens) {
      const Example& example = set.examples[outputs.outputs.size()];
      outputs.outputs.push_back(vocabulary.decode(tokens));
      outputs.predictions.push_back(set.task->postprocess(outputs.outputs.back(), example, false));
    }
    if (!set.task->metric_objs().empty()) append(outputs.tokens, std::move(batch.tokens));
    for (auto& [name, values] : batch.aux_values)
      append(outputs.aux_values[name], std::move(values));
  }
  for (Scores& scores : all.scores) append(outputs.scores, std::move(scores));
  return true;
}

std::optional<std::vector<TaskOutputs>> Evaluator::evaluate(
    const ModelFns& model, const std::function<bool()>& stop) const {
  std::vector<TaskOutputs> all;
  for (const auto& set : sets_) {
    TaskOutputs outputs;
    outputs.task = set->task;
    outputs.examples = &set->examples;
    outputs.targets = &set->targets;
    if (!run_model(*set, model, stop, outputs)) return std::nullopt;
    compute_metrics(outputs, target_field_name_);
    all.push_back(std::move(outputs));
  }
  return all;
}

}  // namespace quintet::data
