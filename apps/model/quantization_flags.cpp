#include "apps/model/quantization_flags.h"

#include <nlohmann/json.hpp>

#include "apps/flags/command_line.h"
#include "apps/model/quantization_report.h"
#include "apps/model/quantized_model.h"

namespace quintet {
namespace {

int64_t bytes_below(const std::filesystem::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

}  // namespace

void QuantizationFlags::add_to(CLI::App& app) {
  set.add_to(app, false);  // convert's SRC comes first
  quantize.add_to(app);
  app.add_option("--output", output, "new folder for the quantized model")->transform(mapped_path);
  app.add_flag("--report", report,
               "print each layer's quantization loss on the run's evaluation set");
  app.add_option("--num_examples", num_examples, "examples that --report compares")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
}

void quantize_model(const QuantizationFlags& flags, const gin::CommandLine& gin_line) {
  QT_CHECK(!flags.set.model_dir.empty(), "quintet convert: name a run with --model_dir=DIR");
  QT_CHECK(flags.report || !flags.output.empty(),
           "quintet convert: say what is wanted, --output=DIR or --report");
  const WeightType weights = flags.quantize.type().value_or(WeightType::f32);
  QT_CHECK(weights != WeightType::f32,
           "quintet convert: expected --quantize=bf16, int8 or fp8, found {}",
           flags.quantize.name.empty() ? "none" : "f32, in which every run is written");
  QT_CHECK(flags.output.empty() || weights != WeightType::int8_dynamic,
           "--quantize=int8_dynamic: write int8, and name int8_dynamic where the model is used");
  const TrainedModel trained =
      open_merged_model(flags.set.model_dir, gin_line, Load::all, flags.set.adapter);
  check_not_quantized(*trained.reader);
  if (!flags.output.empty()) {
    write_quantized(trained, weights, flags.output);
    const int64_t bytes = bytes_below(flags.output);
    flags.results.print_object(nlohmann::ordered_json{
        {"folder", flags.output},
        {"weights", name_of(weights)},
        {"step", trained.step},
        {"bytes", bytes}}.dump());
    flags.results.print_text(fmt::format("{}: {} at step {} in {}, {:.1f} MiB\n", flags.output,
                                         trained.model_dir.string(), trained.step, name_of(weights),
                                         static_cast<double>(bytes) / (1 << 20)));
  }
  if (flags.report)
    report_quantization(trained, weights, flags.set.dataset_of(trained, "quintet convert"),
                        flags.num_examples, flags.results);
}

}  // namespace quintet
