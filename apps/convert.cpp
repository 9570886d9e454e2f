// `quintet convert`: a trained model with its weights in fewer bits, and what it loses by that.

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
  std::string output;
  bool report = false;
  int64_t num_examples = 16;
  ComputeFlags compute;
};

/// Inputs and targets of the first examples of the run's evaluation set; of a language model's no
/// inputs.
std::pair<std::vector<Ids>, std::vector<Ids>> examples_of(const TrainedModel& trained,
                                                          const ConvertFlags& flags) {
  const data::DatasetConfig set = flags.set.dataset_of(trained, "quintet convert");
  std::vector<Ids> inputs, targets;
  for (const data::Example& example :
       data::evaluation_examples(*trained.session->task(set), set, flags.num_examples)) {
    inputs.push_back(example.has("inputs") ? example.tokens("inputs") : Ids());
    targets.push_back(example.tokens("targets"));
  }
  return {inputs, targets};
}

void report(const ConvertFlags& flags, const TrainedModel& trained, WeightType weights) {
  const auto exact = pack(*trained.model->model);
  const auto quantized = pack(*trained.model->model, {.type = weights});
  const auto* decoder = dynamic_cast<const DecoderOnlyModel*>(trained.model->model.get());
  const auto [inputs, targets] = examples_of(trained, flags);
  fmt::print(stderr, "{} at step {}, {} instead of f32, {} examples\n", trained.model_dir.string(),
             trained.step, name_of(weights), inputs.size());
  fmt::print(stderr, "{:<20} {:>10} {:>13} {:>15} {:>14}\n", "quantized", "MiB", "weight error",
             "KL nats/token", "other token %");
  for (const auto& loss : decoding::quantization_losses(
           *exact, *quantized, inputs, targets,
           decoder != nullptr && decoder->inputs_bidirectional_attention())) {
    const double mib = static_cast<double>(loss.bytes) / (1 << 20);
    fmt::print(stderr, "{:<20} {:>10.3f} {:>13.5f} {:>15.3e} {:>14.2f}\n", loss.part, mib,
               loss.weight_error, loss.divergence, 100 * loss.changed);
    fmt::print(
        "{{\"part\": \"{}\", \"weights\": \"{}\", \"bytes\": {}, \"weight_error\": {:.6g}, "
        "\"kl_divergence\": {:.6g}, \"changed_tokens\": {:.6g}}}\n",
        loss.part, name_of(weights), loss.bytes, loss.weight_error, loss.divergence, loss.changed);
  }
}

int64_t bytes_below(const std::filesystem::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

}  // namespace

int run_convert(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  const gin::CommandLine gin_line = gin::extract_command_line(left);
  ConvertFlags flags;
  CommandLine cli(
      "convert",
      "A model in fewer bits, which generate, infer and serve read as it is; what it loses, part "
      "by part: JSON lines on stdout, a table on stderr.",
      "quintet convert --model_dir=/tmp/numbers --quantize=int8 --output=/tmp/small\n"
      "quintet convert --model_dir=/tmp/numbers --quantize=int8 --report");
  CLI::App& app = cli.app();
  flags.set.add_to(app);
  flags.quantize.add_to(app);
  app.add_option("--output", flags.output, "a new folder for the model in bf16, int8 or fp8");
  app.add_flag("--report", flags.report, "each layer's loss on the run's evaluation set");
  app.add_option("--num_examples", flags.num_examples, "that are compared")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  flags.compute.add_to(app);
  if (!cli.parse(left)) return 0;
  QT_CHECK(!flags.set.model_dir.empty(), "quintet convert: name a run with --model_dir=DIR");
  QT_CHECK(flags.report || !flags.output.empty(),
           "quintet convert: say what is wanted, --output=DIR or --report");
  flags.compute.start();
  const WeightType weights = flags.quantize.type().value_or(WeightType::f32);
  QT_CHECK(weights != WeightType::f32,
           "quintet convert: expected --quantize=bf16, int8 or fp8, found {}",
           flags.quantize.name.empty() ? "none" : "f32, in which every run is written");
  QT_CHECK(flags.output.empty() || weights != WeightType::int8_dynamic,
           "--quantize=int8_dynamic: write int8, and name int8_dynamic where the model is used");
  const TrainedModel trained = open_trained_model(flags.set.model_dir, gin_line.bindings);
  check_not_quantized(*trained.reader);
  if (!flags.output.empty()) {
    write_quantized(trained, weights, flags.output);
    fmt::print(stderr, "{}: {} at step {} in {}, {:.1f} MiB\n", flags.output,
               trained.model_dir.string(), trained.step, name_of(weights),
               static_cast<double>(bytes_below(flags.output)) / (1 << 20));
  }
  if (flags.report) report(flags, trained, weights);
  return 0;
}

}  // namespace quintet
