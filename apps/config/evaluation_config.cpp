#include "apps/config/evaluation_config.h"

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
                {"train_eval_dataset_cfg", none},
                {"fallback_init_rng", none},
                {"use_orbax", true}},
               std::move(run));
}

EvaluationConfig evaluation_config_from(const gin::Arguments& args) {
  EvaluationConfig config;
  config.model = args.get<std::shared_ptr<ConfiguredModel>>("model");
  config.dataset = args.get<data::DatasetConfig>("dataset_cfg");
  config.restore = restore_config_from(args);
  warn_of_ignored(config.restore, args);
  config.output_dir = local_path(args.get<std::string>("output_dir"));
  config.partitioner = args.get<PartitionerConfig>("partitioner");
  config.config_text = args.config().config_str();
  const gin::Value evaluator = args.value("inference_evaluator_cls");
  const auto* callable = evaluator.get_if<gin::Callable>();
  if (!evaluator.is_none())
    config.evaluator = gin::as<EvaluatorConfig>(callable != nullptr ? (*callable)() : evaluator,
                                                args.where("inference_evaluator_cls"));
  return config;
}

}  // namespace quintet
