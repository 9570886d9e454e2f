#include "apps/model/quantization_report.h"

#include <nlohmann/json.hpp>

#include "apps/model/predictor.h"
#include "models/decoding/quantization_loss.h"

namespace quintet {
namespace {

using Ids = std::vector<int32_t>;

/// Inputs and targets of the first examples of the run's evaluation set; of a language model's no
/// inputs.
std::pair<std::vector<Ids>, std::vector<Ids>> examples_of(const TrainedModel& trained,
                                                          const data::DatasetConfig& set,
                                                          int64_t num_examples) {
  std::vector<Ids> inputs, targets;
  for (const data::Example& example :
       data::evaluation_examples(*trained.session->task(set), set, num_examples)) {
    inputs.push_back(example.has("inputs") ? example.tokens("inputs") : Ids());
    targets.push_back(example.tokens("targets"));
  }
  return {inputs, targets};
}

}  // namespace

void report_quantization(const TrainedModel& trained, WeightType weights,
                         const data::DatasetConfig& set, int64_t num_examples,
                         const ResultFormat& format) {
  const auto exact = pack(*trained.model->model);
  const auto quantized = pack(*trained.model->model, {.type = weights});
  const auto [inputs, targets] = examples_of(trained, set, num_examples);
  std::string table = fmt::format(
      "{} at step {}, {} instead of f32, {} examples\n{:<20} {:>10} {:>13} {:>15} {:>14}\n",
      trained.model_dir.string(), trained.step, name_of(weights), inputs.size(), "quantized", "MiB",
      "weight error", "KL nats/token", "other token %");
  for (const auto& loss :
       decoding::quantization_losses(*exact, *quantized, inputs, targets,
                                     trained.model->model->spec().inputs_bidirectional_attention)) {
    const double mib = static_cast<double>(loss.bytes) / (1 << 20);
    table += fmt::format("{:<20} {:>10.3f} {:>13.6g} {:>15.6g} {:>14.2f}\n", loss.part, mib,
                         loss.weight_error, loss.divergence, 100 * loss.changed);
    const nlohmann::ordered_json json = {{"part", loss.part},
                                         {"weights", name_of(weights)},
                                         {"bytes", loss.bytes},
                                         {"weight_error", loss.weight_error},
                                         {"kl_divergence", loss.divergence},
                                         {"changed_tokens", loss.changed}};
    format.print_object(json.dump());
  }
  format.print_text(table);
}

}  // namespace quintet
