#include "data/configurables/configurables.h"
#include "data/tasks/gin_types.h"
#include "data/workers/worker_functions.h"
#include "runtime/base/check.h"
#include "runtime/gin/config_state.h"

namespace quintet::data {
namespace {

using gin::Arguments;
using gin::Param;

std::vector<Param> process_params(std::vector<Param> more = {}) {
  const WorkerOptions options;
  std::vector<Param> params = {"command",
                               {"processes", options.processes},
                               {"timeout_seconds", options.timeout_seconds},
                               {"format", options.format}};
  params.insert(params.end(), more.begin(), more.end());
  return params;
}

ModelOutputType model_output_type(const Arguments& a) {
  const auto name = a.get<std::string>("model_output_type");
  if (name == "PREDICTION") return ModelOutputType::prediction;
  if (name == "SCORE") return ModelOutputType::score;
  if (name == "PREDICTION_WITH_AUX") return ModelOutputType::prediction_with_aux;
  const std::string where = a.where("model_output_type").text;
  QT_CHECK(name != "SCORE_WITH_INTERMEDIATES",
           "{}: T5X's evaluation gives no metric intermediates of scores; bind 'SCORE'", where);
  fail(ExitCode::kUsage, "{}: expected 'PREDICTION', 'SCORE' or 'PREDICTION_WITH_AUX', found '{}'",
       where, name);
}

MetricObject metric_object(WorkersPtr workers, const Arguments& a) {
  const auto batch_size = a.get<int64_t>("batch_size");
  QT_CHECK(batch_size >= 0, "{}: expected 0 or more, found {}", a.where("batch_size").text,
           batch_size);
  QT_CHECK(!workers->tf_examples(), "{}: a metric object takes its examples as 'json'",
           a.where("format").text);
  return process_metric_object(std::move(workers), model_output_type(a), batch_size);
}

}  // namespace

WorkersPtr own_process(const gin::Value& value, const gin::Where& where, const std::string& other) {
  const auto* callable = value.get_if<gin::Callable>();
  const bool is_own = callable != nullptr && callable->name() == "quintet.data.ProcessFunction";
  const gin::Value made = is_own ? (*callable)() : value;
  if (auto workers = made.object_as<const Workers>()) return workers;
  gin::conversion_error(where, other + " or @quintet.data.ProcessFunction()", value);
}

void register_workers(gin::Registry& r, bool allow_commands) {
  const auto workers = [allow_commands](const Arguments& a) {
    const std::string where = a.where("command").text;
    std::string refusal;
    if (!allow_commands && !where.starts_with(gin::kBindingFile))
      refusal = fmt::format(
          "{}: a model's own configuration starts no program; if you trust this one, give "
          "--allow_commands, or bind the command with --gin.NAME=...",
          where);
    return std::make_shared<const Workers>(
        WorkerOptions{.command = a.get<std::vector<std::string>>("command"),
                      .processes = a.get<int64_t>("processes"),
                      .timeout_seconds = a.get<double>("timeout_seconds"),
                      .format = a.get<std::string>("format"),
                      .refusal = std::move(refusal)});
  };
  r.add("quintet.data.ProcessPreprocessor", process_params(),
        [workers](const Arguments& a) { return gin::to_value(process_preprocessor(workers(a))); });
  r.add("quintet.data.ProcessPostprocessor", process_params(),
        [workers](const Arguments& a) { return gin::to_value(process_postprocessor(workers(a))); });
  r.add("quintet.data.ProcessMetric", process_params(), [workers](const Arguments& a) {
    return gin::to_value(process_metric(workers(a), "ProcessMetric"));
  });
  r.add("quintet.data.ProcessMetricObject",
        process_params({{"model_output_type", "PREDICTION"}, {"batch_size", int64_t{0}}}),
        [workers](const Arguments& a) { return gin::to_value(metric_object(workers(a), a)); });
  r.add("quintet.data.ProcessFunction", process_params(),
        [workers](const Arguments& a) { return gin::Value::object(workers(a)); });
  r.add("quintet.data.ProcessDecoder", process_params(), [workers](const Arguments& a) {
    return gin::Value::object(
        std::make_shared<const FileDataSource::ParseRecord>(process_decoder(workers(a))));
  });
  r.add(
      "quintet.data.ProcessSource",
      process_params({{"splits", gin::list_of({"train", "validation", "test"})}}),
      [workers](const Arguments& a) {
        return gin::to_value(process_source(workers(a), a.get<std::vector<std::string>>("splits")));
      });
}

}  // namespace quintet::data
