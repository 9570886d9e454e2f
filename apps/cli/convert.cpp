// `quintet convert`: a trained model with its weights in fewer bits, and what it loses by that.

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/flags/compute_flags.h"
#include "apps/flags/quantize_flag.h"
#include "apps/model/quantization_report.h"
#include "apps/model/quantized_model.h"
#include "apps/model/trained_dataset.h"

namespace quintet {
namespace {

struct ConvertFlags {
  TrainedDatasetFlags set;
  QuantizeFlag quantize;
  std::string output;
  bool report = false;
  int64_t num_examples = 16;
  ComputeFlags compute;
};

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
  const TrainedModel trained = open_trained_model(flags.set.model_dir, gin_line);
  check_not_quantized(*trained.reader);
  if (!flags.output.empty()) {
    write_quantized(trained, weights, flags.output);
    fmt::print(stderr, "{}: {} at step {} in {}, {:.1f} MiB\n", flags.output,
               trained.model_dir.string(), trained.step, name_of(weights),
               static_cast<double>(bytes_below(flags.output)) / (1 << 20));
  }
  if (flags.report)
    report_quantization(trained, weights, flags.set.dataset_of(trained, "quintet convert"),
                        flags.num_examples);
  return 0;
}

}  // namespace quintet
