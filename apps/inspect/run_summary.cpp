#include "apps/inspect/run_summary.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "apps/input/run_vocabularies.h"
#include "apps/model/trained_model.h"
#include "checkpoint/bundle/bundle.h"
#include "checkpoint/open/recognize.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"
#include "runtime/metrics/metrics_log.h"

namespace quintet {
namespace {

std::string stack_text(const StackSpec& stack) {
  const LayerConfig& layer = stack.layer;
  std::string text =
      fmt::format("{} of {} layers, {} wide, {} heads of {}, MLP of {} ({})", stack.scope(),
                  stack.num_layers, layer.emb_dim, layer.num_heads, layer.head_dim, layer.mlp_dim,
                  fmt::join(layer.mlp_activations, ", "));
  if (stack.has_experts())
    text += fmt::format(", {} of them with experts", stack.sparse.count(stack.num_layers));
  return text;
}

std::string architecture_of(const ModelSpec& spec) {
  std::string text = spec.encoder ? stack_text(*spec.encoder) + "; " : "";
  return text + stack_text(spec.decoder) +
         fmt::format("; {} ids, {}", spec.vocab_size,
                     spec.logits_via_embedding ? "logits by the embedding"
                                               : "logits by a matrix of their own");
}

/// Both as one if they are the same.
nlohmann::ordered_json vocabulary_of(const ConfiguredModel& model) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, record] : vocabularies_of(model))
    texts[name.substr(name.find('.') + 1)] = to_string(record);
  if (texts.empty()) return "none: ids are no text";
  if (texts.begin()->second == texts.rbegin()->second) return texts.begin()->second;
  return texts;
}

nlohmann::ordered_json task_of(const gin::Config& config) {
  const gin::Value value = config.evaluate("t5x.train.train.train_dataset_cfg");
  if (value.is_none()) return nullptr;
  return gin::as<data::DatasetConfig>(value, {"train_dataset_cfg"}).mixture_or_task_name;
}

nlohmann::ordered_json described(const std::filesystem::path& model_dir, bool is_run,
                                 const gin::CommandLine& line) {
  const TrainedModel trained = open_trained_model(model_dir, line, Load::nothing);
  const BaseModel& model = *trained.model->model;
  nlohmann::ordered_json summary = {{"architecture", architecture_of(model.spec())},
                                    {"parameters", trained.model->model->parameters().elements()},
                                    {"vocabulary", vocabulary_of(*trained.model)}};
  if (is_run) summary["task"] = task_of(trained.session->config());
  return summary;
}

}  // namespace

nlohmann::ordered_json summary_of(const std::filesystem::path& model_dir) {
  nlohmann::ordered_json summary = nlohmann::ordered_json::object();
  const bool is_run = bundle::is_at(model_dir) || is_there(model_dir / "config.gin");
  if (!is_run && !is_huggingface(model_dir)) return summary;
  try {
    summary = described(model_dir, is_run, {});
  } catch (const Error& error) {
    summary["problem"] = error.what();
    try {  // All but a vocabulary that is not here, which T5X's gin files name by this macro.
      auto rest = described(model_dir, is_run, {{}, {"VOCABULARY = None"}, {}});
      rest["vocabulary"] = error.what();
      summary = std::move(rest);
    } catch (const Error&) {  // The first problem has been told.
    }
  }
  for (const auto& [run, line] : MetricsLog::last_lines(model_dir / "metrics.jsonl"))
    summary["last_metrics"][run] = line;
  return summary;
}

}  // namespace quintet
