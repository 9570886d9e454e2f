// `quintet convert`: what a trained model loses when its weights are kept in fewer bits.

#include "apps/cli.h"
#include "apps/compute_flags.h"
#include "apps/predictor.h"
#include "apps/quantize_flag.h"
#include "apps/trained_dataset.h"
#include "apps/verbs.h"
#include "models/decoding/quantization_loss.h"

namespace quintet {
namespace {

using Ids = std::vector<int32_t>;

struct ConvertFlags {
  TrainedDatasetFlags set;
  QuantizeFlag quantize;
  bool report = false;
  int64_t num_examples = 16;
  ComputeFlags compute;
};

/// Inputs and targets of the first examples of the run's evaluation set.
std::pair<std::vector<Ids>, std::vector<Ids>> examples_of(const TrainedModel& trained,
                                                          const ConvertFlags& flags) {
  const data::DatasetConfig set = flags.set.dataset_of(trained, "quintet convert");
  std::vector<Ids> inputs, targets;
  for (const data::Example& example :
       data::evaluation_examples(*trained.session->task(set), set, flags.num_examples)) {
    inputs.push_back(example.tokens("inputs"));
    targets.push_back(example.tokens("targets"));
  }
  return {inputs, targets};
}

int report(const ConvertFlags& flags, const std::vector<std::string>& bindings) {
  const TrainedModel trained = open_trained_model(flags.set.model_dir, bindings);
  const auto exact = pack(*trained.model->model, WeightType::f32);
  const auto quantized = pack(*trained.model->model, flags.quantize.type());
  const auto [inputs, targets] = examples_of(trained, flags);
  fmt::print(stderr, "{} at step {}, {} instead of f32, {} examples\n", trained.model_dir.string(),
             trained.step, flags.quantize.name, inputs.size());
  fmt::print(stderr, "{:<20} {:>10} {:>13} {:>15} {:>14}\n", "quantized", "MiB", "weight error",
             "KL nats/token", "other token %");
  for (const auto& loss : decoding::quantization_losses(*exact, *quantized, inputs, targets)) {
    const double mib = static_cast<double>(loss.bytes) / (1 << 20);
    fmt::print(stderr, "{:<20} {:>10.3f} {:>13.5f} {:>15.3e} {:>14.2f}\n", loss.part, mib,
               loss.weight_error, loss.divergence, 100 * loss.changed);
    fmt::print(
        "{{\"part\": \"{}\", \"weights\": \"{}\", \"bytes\": {}, \"weight_error\": {:.6g}, "
        "\"kl_divergence\": {:.6g}, \"changed_tokens\": {:.6g}}}\n",
        loss.part, flags.quantize.name, loss.bytes, loss.weight_error, loss.divergence,
        loss.changed);
  }
  return 0;
}

}  // namespace

int run_convert(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  const gin::CommandLine gin_line = gin::extract_command_line(left);
  ConvertFlags flags;
  CommandLine cli(
      "convert",
      "What a model loses in fewer bits, part by part: JSON lines on stdout, a table on "
      "stderr.",
      "quintet convert --model_dir=/tmp/numbers --quantize=int8 --report");
  CLI::App& app = cli.app();
  flags.set.add_to(app);
  flags.quantize.add_to(app);
  app.add_flag("--report", flags.report, "each layer's loss on the run's evaluation set")
      ->required();
  app.add_option("--num_examples", flags.num_examples, "that are compared")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  flags.compute.add_to(app);
  if (!cli.parse(left)) return 0;
  QT_CHECK(!flags.set.model_dir.empty(), "quintet convert: name a run with --model_dir=DIR");
  flags.compute.start();
  return report(flags, gin_line.bindings);
}

}  // namespace quintet
