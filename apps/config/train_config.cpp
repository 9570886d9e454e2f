#include "apps/config/train_config.h"

#include <chrono>

#include "apps/config/decoding_config.h"
#include "apps/config/gin_flags.h"
#include "runtime/base/files/path_map.h"

namespace quintet {
namespace {

using MaybeDataset = std::optional<data::DatasetConfig>;

/// A value, or what calling the reference gives: trainer_cls = @trainer.Trainer.
template <typename T>
T made(const gin::Arguments& args, const std::string& name) {
  const gin::Value value = args.value(name);
  const gin::Callable* callable = value.get_if<gin::Callable>();
  return gin::as<T>(callable != nullptr ? (*callable)() : value, args.where(name));
}

/// Of batches that are computed without asking the data set for its longest features.
void check_lengths(const data::DatasetConfig& set) {
  QT_CHECK(
      !set.task_feature_lengths.empty(),
      "{}: expected a length for each feature of the task, such as {{'inputs': 512, 'targets': "
      "114}}, found none",
      set.lengths_where);
}

int64_t positive_or_zero(const gin::Arguments& args, const std::string& name) {
  const int64_t value = args.get<std::optional<int64_t>>(name).value_or(0);
  QT_CHECK(value >= 0, "{}: {} must not be below 0", args.where(name).text, value);
  return value;
}

/// That T5X would draw the masks at all.
void check_t5x_dropout(const gin::Arguments& args, const ConfiguredModel& model) {
  check_t5x_dropout(model.model->spec());
  QT_CHECK(!model.lora || model.lora->dropout_rate == 0,
           "trainer.Trainer.t5x_dropout: T5X has no adapters, so no masks for them; bind "
           "lora.LoraConfig.dropout_rate = 0 or t5x_dropout = False");
  for (const char* name : {"random_seed", "use_hardware_rng"}) {
    const gin::Value value = args.value(name);
    QT_CHECK(name == std::string("random_seed") ? !value.is_none() : !args.get<bool>(name),
             "{}: {} with trainer.Trainer.t5x_dropout: T5X draws its masks from the hardware's "
             "generator then; bind random_seed to a number and use_hardware_rng = False",
             args.where(name).text, value.repr());
  }
}

/// Every example a microbatch, so that its gradient can be clipped.
void take_each_example(TrainConfig& config) {
  const int64_t rows = config.train_dataset.batch_size;
  int64_t& parts = config.trainer.num_microbatches;
  QT_CHECK(parts <= 1 || parts == rows,
           "trainer.Trainer.num_microbatches = {}: the optimizer clips the gradient of each "
           "example, so that each of the "
           "{} rows of a batch is a microbatch; leave it out",
           parts, rows);
  QT_CHECK(
      !config.trainer.t5x_dropout,
      "trainer.Trainer.t5x_dropout: T5X has no masks for a gradient of each example; bind False");
  parts = rows;
}

}  // namespace

TrainConfig train_config_from(const gin::Arguments& args) {
  TrainConfig config;
  config.model = configured_model(args);
  const OptimizerPtr optimizer = config.model->optimizer_to_train();
  config.train_dataset = args.get<data::DatasetConfig>("train_dataset_cfg");
  check_lengths(config.train_dataset);
  config.train_eval_dataset = args.get<MaybeDataset>("train_eval_dataset_cfg");
  config.infer_eval_dataset = args.get<MaybeDataset>("infer_eval_dataset_cfg");
  config.checkpoint = args.get<CheckpointConfig>("checkpoint_cfg");
  if (config.checkpoint.save) apply_manager_bindings(*config.checkpoint.save, args.config());
  config.partitioner = args.get<PartitionerConfig>("partitioner");
  config.trainer = made<TrainerOptions>(args, "trainer_cls");
  if (!args.value("te_config_cls").is_none())
    config.fp8 = made<TransformerEngineConfig>(args, "te_config_cls");
  config.model_dir = local_path(args.get<std::string>("model_dir"));
  QT_CHECK(!config.model_dir.empty(), "{}: must not be empty", args.where("model_dir").text);
  config.total_steps = args.get<int64_t>("total_steps");
  QT_CHECK(config.total_steps >= 0, "{}: {} must not be below 0", args.where("total_steps").text,
           config.total_steps);
  config.relative_steps = args.get<std::optional<int64_t>>("relative_steps");
  config.eval_steps = positive_or_zero(args, "eval_steps");
  config.eval_period = positive_or_zero(args, "eval_period");
  config.stats_period = positive_or_zero(args, "stats_period");
  if (config.stats_period == 0) config.stats_period = config.eval_period;
  config.random_seed = args.get<std::optional<int64_t>>("random_seed");
  if (config.trainer.t5x_dropout) check_t5x_dropout(args, *config.model);
  if (optimizer->example_clip()) take_each_example(config);
  config.run_eval_before_training = args.get<bool>("run_eval_before_training");
  if (!args.value("inference_evaluator_cls").is_none())
    config.evaluator = made<EvaluatorConfig>(args, "inference_evaluator_cls");
  const gin::Value actions = args.value("actions");
  if (!actions.is_none()) config.actions = args.get<Actions>("actions");
  check_modes(config.actions, args.where("actions").text);
  config.verify_vocabs = verifies_vocabs(args.config());
  if (config.train_eval_dataset) {
    check_lengths(*config.train_eval_dataset);
    QT_CHECK(config.eval_steps > 0,
             "{}: expected 1 or more, or train_eval_dataset_cfg = None, found {}",
             args.where("eval_steps").text, args.value("eval_steps").repr());
  }
  config.config_text = args.config().config_str();
  return config;
}

void register_train(gin::Registry& registry, std::function<gin::Value(const gin::Arguments&)> run) {
  const gin::Value none;
  const std::vector<gin::Param> params = {
      {"model"},
      {"train_dataset_cfg"},
      {"train_eval_dataset_cfg"},
      {"infer_eval_dataset_cfg"},
      {"checkpoint_cfg"},
      {"partitioner"},
      {"trainer_cls"},
      {"model_dir"},
      {"total_steps"},
      {"eval_steps"},
      {"eval_period"},
      {"relative_steps", none},
      {"stats_period", none},
      {"random_seed"},
      {"use_hardware_rng", false},
      {"summarize_config_fn"},
      {"inference_evaluator_cls", none},
      {"get_dataset_fn", none},
      {"concurrent_metrics", true},
      {"actions", none},
      {"train_eval_get_dataset_fn", none},
      {"prepare_train_iter_fn", none},
      {"run_eval_before_training", false},
      {"train_state_initializer_cls", none},
      {"use_orbax", true},
      {"verify_matching_vocabs_fn", false, std::nullopt},  // T5X's: it verifies
      {"gc_period", 0},
      {"training_eval_average_metrics", none},
      {"use_jax_array", none},
      {"te_config_cls", none},
  };
  registry.add("t5x.train.train", params, std::move(run));
  const auto no_effect = [](const gin::Arguments&) -> gin::Value { return {}; };
  // train passes its own; evaluate with a training_evaluator_cls reads it.
  registry.add("t5x.utils.get_training_eval_datasets",
               {{"eval_steps", none}, {"deterministic", false}}, no_effect);
  for (const char* name : {"t5x.utils.get_dataset", "t5x.utils.verify_matching_vocabs",
                           "t5x.utils.TrainStateInitializer", "t5x.gin_utils.summarize_gin_config"})
    if (registry.find(name) == nullptr) registry.add(name, {}, no_effect);
}

}  // namespace quintet
