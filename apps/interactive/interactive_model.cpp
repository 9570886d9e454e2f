#include "apps/interactive/interactive_model.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "apps/finetune/finetune_metrics.h"
#include "apps/input/run_data.h"
#include "apps/model/trained_dataset.h"
#include "checkpoint/open/open_checkpoint.h"
#include "data/examples/trim.h"
#include "data/tasks/gin_types.h"
#include "runtime/base/files/path_map.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMeasured = 5'000;  // examples to train on of which lengths are taken

/// A run of its own, whatever run the model is from.
gin::CommandLine with_model_dir(gin::CommandLine line, const fs::path& folder) {
  line.bindings.push_back("MODEL_DIR = " + gin::Value(folder.string()).repr());
  return line;
}

fs::path new_temporary_folder() {
  std::string name = (fs::temp_directory_path() / "quintet-interactive-XXXXXX").string();
  QT_CHECK_AS(ExitCode::kDisk, mkdtemp(name.data()) != nullptr,
              "{}: cannot make a folder; name one with --output_dir=DIR", name);
  return name;
}

/// What gin files call a metric.
std::string function_of_metric(const std::string& name) {
  const std::vector<std::string> names = finetune_metric_names();
  return std::ranges::find(names, name) != names.end() ? finetune_metric(name).function : name;
}

/// What lengths examples have.
struct Measured {
  std::map<std::string, int64_t> longest = {};
  int64_t count = 0;
  bool all = true;  // that are used: no longer one follows

  void add(const data::Example& example, const data::Lengths& features) {
    ++count;
    for (const auto& [name, limit] : features)
      if (const data::Value* value = example.find(name))
        longest[name] = std::max(longest[name], data::length_of(*value));
  }
};

/// The longest of them, where there are no others, else the limits. `answers`: targets have room for any.
data::Lengths lengths_of(const Measured& measured, const data::Lengths& limits, bool answers) {
  data::Lengths lengths;
  for (const auto& [name, limit] : limits) {
    const auto longest = measured.longest.find(name);
    if (longest == measured.longest.end() || longest->second == 0) continue;
    const bool is_limited = !measured.all || (answers && name == "targets");
    lengths.emplace_back(name, is_limited ? limit.first : longest->second);
  }
  return lengths;
}

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

/// Adds the first of a data set, at most `most`; no more than `used` are used.
void measure(Measured& measured, const data::Provider& provider, const data::DatasetConfig& set,
             int64_t most, int64_t used) {
  const data::StreamPtr stream = provider.stream(
      {.split = set.split,
       .sequence_length = set.task_feature_lengths,
       .epochs = provider.has_end(set.split) ? std::optional(int64_t{1}) : std::nullopt});
  const int64_t before = measured.count;
  data::Example example;
  while (measured.count - before < used && stream->next(example)) {
    if (measured.count - before == most) {
      measured.all = false;
      return;
    }
    measured.add(example, set.task_feature_lengths);
  }
  QT_CHECK_AS(ExitCode::kData, measured.count > before, "{}, split '{}': holds no examples",
              provider.name(), set.split);
}

bool has_split(const data::Task& task, const std::string& split) {
  return std::ranges::count(task.splits(), split) > 0;
}

/// A task judged by other metrics.
data::ProviderPtr with_metrics(const data::Task& task, std::vector<data::MetricFn> metrics) {
  data::Task::Config config = task.config();
  config.metric_fns = std::move(metrics);
  return std::make_shared<data::Task>(std::move(config));
}

}  // namespace

OutputFolder::OutputFolder(std::string named) : path_(std::move(named)), is_kept_(!path_.empty()) {
  if (!is_kept_) path_ = new_temporary_folder();
}

OutputFolder::~OutputFolder() {
  if (!is_kept_) remove_tree(path_);
}

/// The batches of the command that trains. The place in the data is that of a run which is gone on with: `train` goes
/// on there.
class InteractiveModel::CommandBatches final : public data::BatchSource {
 public:
  std::optional<data::Batch> next() override { return batches_->next(); }
  std::string position() const override { return position_; }
  void restore(std::string_view position) override { position_ = position; }
  void take(std::unique_ptr<data::Batches> batches) { batches_ = std::move(batches); }

 private:
  std::unique_ptr<data::Batches> batches_;
  std::string position_;
};

InteractiveModel::InteractiveModel(const InteractiveFlags& flags, const gin::CommandLine& line,
                                   Ranks& ranks)
    : flags_(flags),
      folder_(flags.output_dir),
      trained_(open_trained_model(flags.model_dir, with_model_dir(line, folder_.path()),
                                  Load::nothing)) {
  reader_.emplace(flags_, trained_);
  train_limits_ = limits(true);
  limits_ = limits(false);
  targets_ = reader_->features().back().second.vocabulary;
  loop_.emplace(
      train_config(), ranks,
      [this](const data::DatasetConfig& set) { return trained_.session->task(set); },
      [this](const data::Provider&, const data::DatasetConfig&, const data::FeatureConverterPtr&,
             const data::Shard&, const Group&) {
        auto batches = std::make_unique<CommandBatches>();
        batches_ = batches.get();
        return batches;
      });
  loop_->open(true);
  opened_step_ = step();
  seed_ = loop_->state().state.seed;
}

/// Of inputs and targets: what the flags say, else how the run was trained, or evaluated.
data::Lengths InteractiveModel::limits(bool to_train) const {
  data::Lengths of_run;
  if (const auto set = dataset_of_run(trained_.session->config(), to_train))
    of_run = set->task_feature_lengths;
  const auto limit = [&](const char* name, const std::optional<int64_t>& flag, int64_t otherwise) {
    return std::pair(std::string(name),
                     flag.value_or(data::find_length(of_run, name).value_or(otherwise)));
  };
  return {limit("inputs", flags_.input_length, 1024), limit("targets", flags_.target_length, 128)};
}

/// A run of the same model without a task of its own and without an end.
TrainConfig InteractiveModel::train_config() const {
  TrainConfig config;
  config.model = trained_.model;
  static_cast<void>(config.model->optimizer_to_train());
  config.train_dataset = {.mixture_or_task = reader_->of_pairs({}).provider,
                          .task_feature_lengths = {},
                          .batch_size = 1};
  config.checkpoint.save = SaveCheckpointConfig{};
  if (!flags_.model_dir.empty())  // what is in --output_dir comes before it
    config.checkpoint.restore = RestoreCheckpointConfig{
        .path = {find_checkpoint(local_path(flags_.model_dir)).string()}, .mode = "specific"};
  config.trainer.learning_rate = constant_schedule(flags_.learning_rate);
  config.model_dir = folder_.path();
  config.total_steps = std::numeric_limits<int64_t>::max();
  config.random_seed = flags_.seed;
  if (!flags_.seed && list_checkpoints(folder_.path()).empty()) config.random_seed = 0;
  config.config_text = trained_.session->config().config_str();
  return config;
}

data::DatasetConfig InteractiveModel::dataset_of(const Examples& examples) const {
  return {.mixture_or_task_name = examples.provider->name(),
          .task_feature_lengths = limits_,
          .split = examples.split,
          .batch_size = flags_.batch_size,
          .seed = seed_};
}

std::map<std::string, double> InteractiveModel::train(const Examples& examples, int64_t steps) {
  predictor_.reset();
  TrainRun& run = loop_->state();
  if (trained_on_ != examples.provider || trained_split_ != examples.split) {
    data::DatasetConfig set = dataset_of(examples);
    set.task_feature_lengths = train_limits_;
    Measured measured;
    measure(measured, *examples.provider, set, kMeasured, kAll);
    set.task_feature_lengths = lengths_of(measured, train_limits_, false);
    set.batch_size = std::min(flags_.batch_size, measured.count);
    set.shuffle = examples.is_task;
    batches_->take(std::make_unique<data::Batches>(
        *examples.provider, set, converter_for(*trained_.model, data::converter_options(set))));
    run.config.train_dataset.batch_size = set.batch_size;
    trained_on_ = examples.provider;
    trained_split_ = examples.split;
  }
  return loop_->advance(steps);
}

void InteractiveModel::predict(const Examples& examples, const Tell& tell) {
  answer(examples, true, tell);
}

void InteractiveModel::score(const Examples& examples, const Tell& tell) {
  answer(examples, false, tell);
}

void InteractiveModel::answer(const Examples& examples, bool predicts, const Tell& tell) {
  check_end(examples);
  if (!predictor_) {
    loop_->state().trainer->forget_graph();
    predictor_.emplace(*trained_.model);
  }
  const data::DatasetConfig set = dataset_of(examples);
  const data::StreamPtr stream = data::evaluation_stream(*examples.provider, set);
  int64_t left = flags_.num_examples.value_or(std::numeric_limits<int64_t>::max());
  while (left > 0 && !stop().reason()) {
    std::vector<data::Example> some;
    data::Example example;
    while (std::ssize(some) < std::min(left, set.batch_size) && stream->next(example))
      some.push_back(std::move(example));
    if (some.empty()) return;
    left -= std::ssize(some);
    answer_batch(some, examples.provider->output_features(), predicts, tell);
  }
}

void InteractiveModel::answer_batch(const std::vector<data::Example>& examples,
                                    const data::Features& features, bool predicts,
                                    const Tell& tell) const {
  Measured measured;
  for (const data::Example& example : examples) measured.add(example, limits_);
  const data::DatasetConfig set{.task_feature_lengths = lengths_of(measured, limits_, predicts),
                                .batch_size = static_cast<int64_t>(examples.size())};
  const auto batch = data::Batches(examples, set, converter_for(*trained_.model, {})).next();
  QT_ASSERT(batch && batch->rows == set.batch_size);
  std::vector<Answered> answered(examples.size());
  for (size_t i = 0; i < examples.size(); ++i) {
    answered[i].input = data::feature_text(examples[i], features, "inputs");
    answered[i].target = data::feature_text(examples[i], features, "targets");
  }
  if (predicts) {
    const decoding::Decodes decodes = predictor_->predict(batch->features, key_from_seed(seed_));
    for (size_t i = 0; i < examples.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      answered[i].prediction = targets_->decode(decodes.best(row));
      answered[i].score = static_cast<double>(decodes.best_score(row));
    }
  } else {
    const std::vector<double> scores = predictor_->score(batch->features).sums();
    for (size_t i = 0; i < examples.size(); ++i) answered[i].score = scores[i];
  }
  for (const Answered& one : answered) tell(one);
}

void InteractiveModel::check_end(const Examples& examples) const {
  QT_CHECK(flags_.num_examples || examples.provider->has_end(examples.split),
           "@{}:{}: has no end; start with --num_examples=N, or name another split: {}",
           examples.provider->name(), examples.split, fmt::join(examples.provider->splits(), ", "));
}

std::optional<std::vector<data::TaskOutputs>> InteractiveModel::evaluate(
    const Examples& examples, const std::vector<std::string>& metrics) {
  check_end(examples);
  predictor_.reset();  // the evaluator has one of its own
  TrainRun& run = loop_->state();
  run.trainer->forget_graph();
  std::vector<data::MetricFn> functions;
  for (const std::string& name : metrics) functions.push_back(metric(name));
  EvaluatorConfig config;
  config.options.num_examples = flags_.num_examples;
  if (folder_.is_kept()) config.log_dir = folder_.path() / "inference_eval";
  data::DatasetConfig set = dataset_of(examples);
  Measured measured;
  std::vector<data::ProviderPtr> providers;
  for (const data::Task* task : examples.provider->tasks()) {
    if (!has_split(*task, set.split)) continue;
    measure(measured, *task, set, kAll, flags_.num_examples.value_or(kAll));
    if (!functions.empty()) providers.push_back(with_metrics(*task, functions));
  }
  if (functions.empty()) providers = {examples.provider};
  set.task_feature_lengths = lengths_of(measured, limits_, true);
  std::vector<data::TaskOutputs> outputs;
  evaluated_.clear();
  for (const data::ProviderPtr& provider : providers) {
    TaskEvaluator& evaluator =
        *evaluated_
             .emplace_back(provider,
                           std::make_unique<TaskEvaluator>(*provider, set, trained_.model, config))
             .second;
    if (!evaluator.run(step(), [&] { return stop().reason().has_value(); })) return std::nullopt;
    log_metrics(config, step(), evaluator.outputs(), *run.summaries, [](const std::string&) {});
    std::ranges::copy(evaluator.outputs(), std::back_inserter(outputs));
  }
  run.summaries->flush();
  return outputs;
}

bool InteractiveModel::knows_metric(const std::string& name) const {
  const std::string function = function_of_metric(name);
  return function.find('.') != std::string::npos && trained_.session->config().knows(function);
}

data::MetricFn InteractiveModel::metric(const std::string& name) const {
  return gin::as<data::MetricFn>(trained_.session->config().call(function_of_metric(name)), {name});
}

fs::path InteractiveModel::save() {
  QT_CHECK(folder_.is_kept(), "save: no folder was named; start with --output_dir=DIR");
  loop_->save();
  return checkpoint_path(folder_.path(), step());
}

}  // namespace quintet
