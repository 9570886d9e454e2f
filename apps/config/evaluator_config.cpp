#include "apps/config/evaluator_config.h"

#include <algorithm>

namespace quintet {

void register_evaluator(gin::Registry& registry) {
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
                {"async_compute_metrics", true},
                {"shuffle", false},
                {"target_field_name", "targets"},
                {"log_dir", none}},
               [](const gin::Arguments& args) -> gin::Value {
                 EvaluatorConfig config;
                 config.options.num_examples = args.get<std::optional<int64_t>>("num_examples");
                 config.options.shuffle = args.get<bool>("shuffle");
                 config.options.target_field_name = args.get<std::string>("target_field_name");
                 const auto loggers = args.get<std::vector<gin::Callable>>("logger_cls");
                 const auto requested = [&](const std::string& name) {
                   return std::any_of(loggers.begin(), loggers.end(), [&](const auto& logger) {
                     return logger.name() == "seqio.loggers." + name;
                   });
                 };
                 config.json_logger = requested("JSONLogger");
                 config.tensorboard_logger = requested("TensorBoardLogger");
                 config.pylogging_logger = requested("PyLoggingLogger");
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
