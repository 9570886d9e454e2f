#include "apps/config/evaluation_config.h"

#include "apps/config/decoding_config.h"
#include "apps/config/ineffective.h"
#include "runtime/base/files/path_map.h"

namespace quintet {

void register_evaluation(gin::Registry& registry,
                         std::function<gin::Value(const gin::Arguments&)> run) {
  const gin::Value none;
  registry.add("t5x.eval.evaluate",
               {{"model"},
                {"dataset_cfg"},
                {"restore_checkpoint_cfg"},
                {"partitioner"},
                {"output_dir"},
                {"inference_evaluator_cls", none},
                {"training_evaluator_cls", none},
                {"summarize_config_fn", none},
                {"train_state_initializer_cls", none},
                {"train_eval_get_dataset_fn", none},
                {"fallback_init_rng", none},
                {"use_orbax", true}},
               std::move(run));
}

namespace {

/// Batches of a teacher-forced evaluation: 0 if training_evaluator_cls is None. T5X's evaluate leaves
/// their number to a binding, too.
int64_t train_eval_steps(const gin::Arguments& args) {
  const gin::Value evaluator = args.value("training_evaluator_cls");
  if (evaluator.is_none()) return 0;
  const gin::Where where = args.where("training_evaluator_cls");
  const std::string name = gin::as<gin::Callable>(evaluator, where).name();
  QT_CHECK(name == "t5x.trainer.Trainer" || name == "t5x.contrib.moe.trainer.MoeTrainer",
           "{}: expected @trainer.Trainer, found @{}: Python is not run", where.text, name);
  const auto steps =
      args.config().arguments(kTrainEvalDatasets).get<std::optional<int64_t>>("eval_steps");
  QT_CHECK(steps && *steps > 0,
           "{}: bind utils.get_training_eval_datasets.eval_steps, the number of batches, to 1 or "
           "more",
           where.text);
  return *steps;
}

}  // namespace

EvaluationConfig evaluation_config_from(const gin::Arguments& args) {
  EvaluationConfig config;
  config.model = configured_model(args);
  config.dataset = args.get<data::DatasetConfig>("dataset_cfg");
  config.restore = restore_config_from(args);
  warn_of_ignored(config.restore, args);
  config.output_dir = local_path(args.get<std::string>("output_dir"));
  config.partitioner = args.get<PartitionerConfig>("partitioner");
  config.train_eval_steps = train_eval_steps(args);
  config.config_text = args.config().config_str();
  const gin::Value evaluator = args.value("inference_evaluator_cls");
  const auto* callable = evaluator.get_if<gin::Callable>();
  if (!evaluator.is_none())
    config.evaluator = gin::as<EvaluatorConfig>(callable != nullptr ? (*callable)() : evaluator,
                                                args.where("inference_evaluator_cls"));
  return config;
}

}  // namespace quintet
