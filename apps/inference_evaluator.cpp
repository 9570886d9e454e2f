#include "apps/inference_evaluator.h"

#include "apps/predictor.h"
#include "apps/train_loop.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/json.h"

namespace quintet {

using JsonText = nlohmann::ordered_json;

struct InferenceEvaluator::TaskSet {
  const data::Task* task = nullptr;
  data::DatasetConfig dataset;
  std::vector<data::Example> examples;
  std::vector<std::string> inputs, targets;  // texts; targets as metrics compare them
  data::FeatureConverterPtr converter;
};

namespace {

/// What the example was tokenized from, else the decoded ids, else nothing.
std::string text_of(const data::Example& example, const data::Features& features,
                    const std::string& name) {
  if (const auto* value = example.find(name + "_pretokenized"))
    if (const auto* text = std::get_if<std::string>(value)) return *text;
  const data::Feature* feature = data::find_feature(features, name);
  if (feature == nullptr || !example.has(name)) return "";
  return feature->vocabulary->decode(example.tokens(name));
}

/// Lengths that no example exceeds, where the configuration gives none.
data::Lengths longest(const std::vector<data::Example>& examples, const data::Features& features) {
  data::Lengths lengths;
  for (const auto& [name, feature] : features) {
    int64_t most = 1;
    for (const data::Example& example : examples)
      if (example.has(name))
        most = std::max(most, static_cast<int64_t>(example.tokens(name).size()));
    lengths.emplace_back(name, most);
  }
  return lengths;
}

/// Text with its invalid bytes replaced, so that it can stand in JSON.
std::string line(const JsonText& json) {
  return json.dump(-1, ' ', false, JsonText::error_handler_t::replace) + "\n";
}

/// Adds a record to `<task>-metrics.jsonl`, in place of those of this step and later ones, which a
/// run that was stopped left there.
void append_metrics(const std::filesystem::path& file, int64_t step,
                    const std::map<std::string, double>& metrics) {
  std::string text;
  if (std::filesystem::exists(file))
    for (const Json& record : Json::read_lines(file))
      if (record["step"].as_int() < step) text += record.raw().dump() + "\n";
  JsonText record = {{"step", step}};
  for (const auto& [name, value] : metrics) record[name] = value;
  atomic_write_file(file, text + line(record));
}

}  // namespace

InferenceEvaluator::InferenceEvaluator(const data::Provider& provider,
                                       const data::DatasetConfig& dataset,
                                       std::shared_ptr<const ConfiguredModel> model,
                                       InferenceEvaluatorConfig config)
    : model_(std::move(model)), config_(std::move(config)) {
  QT_CHECK(!dataset.pack,
           "{}: an evaluation set that is decoded cannot be packed; bind pack = False",
           provider.name());
  for (const data::Task* task : provider.tasks()) {
    auto set = std::make_unique<TaskSet>();
    set->task = task;
    set->dataset = dataset;
    set->examples = data::evaluation_examples(*task, dataset, config_.num_examples);
    if (dataset.task_feature_lengths.empty())
      set->dataset.task_feature_lengths = longest(set->examples, task->output_features());
    set->converter = converter_for(*model_, set->dataset.task_feature_lengths, {});
    for (const data::Example& example : set->examples) {
      set->inputs.push_back(text_of(example, task->output_features(), "inputs"));
      set->targets.push_back(
          task->postprocess(text_of(example, task->output_features(), "targets"), example, true));
    }
    sets_.push_back(std::move(set));
  }
}

InferenceEvaluator::~InferenceEvaluator() = default;

const std::map<std::string, std::vector<Prediction>>& InferenceEvaluator::predictions() const {
  return predictions_;
}

std::optional<TaskMetrics> InferenceEvaluator::run(int64_t step,
                                                   const std::function<bool()>& stop) {
  const Predictor predictor(*model_);
  predictions_.clear();
  TaskMetrics result;
  for (const auto& set : sets_) {
    const auto vocabulary = data::find_feature(set->task->output_features(), "targets")->vocabulary;
    std::vector<std::string> predicted;
    std::vector<Prediction>& predictions = predictions_[set->task->name()];
    data::Batches batches(set->examples, set->dataset, set->converter);
    while (auto batch = batches.next()) {
      if (stop()) return std::nullopt;
      const decoding::Decodes decodes = predictor.predict(batch->features);
      for (int64_t row = 0; row < batch->rows; ++row) {
        const size_t i = predicted.size();
        predicted.push_back(
            set->task->postprocess(vocabulary->decode(decodes.best(row)), set->examples[i], false));
        predictions.push_back({set->inputs[i], set->targets[i], predicted[i],
                               static_cast<double>(decodes.best_score(row))});
      }
    }
    for (const data::MetricFn& metric : set->task->metric_fns())
      for (const auto& [name, value] : metric.compute(set->targets, predicted))
        result[set->task->name()][name] = value;
    result[set->task->name()];
    log(*set, step, result[set->task->name()]);
  }
  return result;
}

void InferenceEvaluator::log(const TaskSet& set, int64_t step,
                             const std::map<std::string, double>& metrics) const {
  if (config_.log_dir.empty() || !config_.json_logger) return;
  std::filesystem::create_directories(config_.log_dir);
  std::string name = set.task->name();
  std::replace(name.begin(), name.end(), '/', '_');
  append_metrics(config_.log_dir / (name + "-metrics.jsonl"), step, metrics);
  std::string text;
  int64_t written = 0;
  for (const Prediction& prediction : predictions_.at(set.task->name())) {
    if (config_.write_n_results && written++ >= *config_.write_n_results) break;
    text += line({{"input", {{"inputs_pretokenized", prediction.input}}},
                  {"target", prediction.target},
                  {"prediction", prediction.prediction}});
  }
  if (!text.empty())
    atomic_write_file(config_.log_dir / fmt::format("{}-{:06}.jsonl", name, step), text);
}

void register_inference_evaluator(gin::Registry& registry) {
  const gin::Value none;
  registry.add("seqio.loggers.PyLoggingLogger", {{"output_dir", none}},
               [](const gin::Arguments&) -> gin::Value { return {}; });
  registry.add("seqio.loggers.TensorBoardLogger", {{"output_dir", none}},
               [](const gin::Arguments&) -> gin::Value { return {}; });
  registry.add("seqio.loggers.JSONLogger", {{"output_dir", none}, {"write_n_results", none}},
               [](const gin::Arguments&) -> gin::Value { return {}; });
  registry.add("seqio.evaluation.Evaluator",
               {{"logger_cls", gin::list_of({})},
                {"num_examples", none},
                {"use_memory_cache", true},
                {"shuffle", false},
                {"target_field_name", "targets"},
                {"log_dir", none}},
               [](const gin::Arguments& args) -> gin::Value {
                 InferenceEvaluatorConfig config;
                 config.num_examples = args.get<std::optional<int64_t>>("num_examples");
                 config.json_logger = false;
                 for (const auto& logger : args.get<std::vector<gin::Callable>>("logger_cls"))
                   config.json_logger |= logger.name() == "seqio.loggers.JSONLogger";
                 config.write_n_results = args.config()
                                              .arguments("seqio.loggers.JSONLogger")
                                              .get<std::optional<int64_t>>("write_n_results");
                 return gin::to_value(config);
               });
  registry.add_alias("seqio.Evaluator", "seqio.evaluation.Evaluator");
  for (const char* name : {"PyLoggingLogger", "TensorBoardLogger", "JSONLogger"})
    registry.add_alias(std::string("seqio.") + name, std::string("seqio.loggers.") + name);
}

}  // namespace quintet
