// `quintet convert`: a model from one checkpoint format to another, or with its weights in fewer bits.

#include "apps/cli/verbs.h"
#include "apps/convert/conversion.h"
#include "apps/flags/command_line.h"
#include "apps/flags/compute_flags.h"
#include "apps/flags/data_flags.h"
#include "apps/model/quantization_flags.h"

namespace quintet {

int run_convert(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  const gin::CommandLine gin_line = gin::extract_command_line(left);
  ConversionFlags conversion;
  QuantizationFlags quantization;
  ComputeFlags compute;
  CommandLine cli(
      "convert",
      "Converts a model to another checkpoint format (source, destination, --to); or quantizes "
      "it (--model_dir, --quantize, --output) for generate, infer and serve, and reports "
      "the loss of accuracy (--report).",
      "quintet convert /tmp/numbers /tmp/numbers-hf --to=hf --dtype=bfloat16\n"
      "quintet convert /tmp/numbers-hf /tmp/numbers-native --to=native --check\n"
      "quintet convert --model_dir=/tmp/numbers --quantize=int8 --output=/tmp/small\n"
      "quintet convert --model_dir=/tmp/numbers --quantize=int8 --report");
  conversion.add_to(cli.app());
  quantization.add_to(cli.app());
  describe_gin_flags(cli.app(), kGinFileOfModel);
  conversion.results.add_to(cli.app());
  compute.add_to(cli.app());
  if (!cli.parse(left)) return 0;
  if (!quantization.quantize.name.empty() && quantization.set.model_dir.empty() &&
      !conversion.requested() && conversion.destination.empty())
    quantization.set.model_dir =
        std::exchange(conversion.source, "");  // convert RUN --quantize=int8
  if (conversion.requested() && conversion.destination.empty() &&
      !quantization.set.model_dir.empty()) {  // convert --model_dir=RUN DST --to=hf
    conversion.destination =
        std::exchange(conversion.source, std::exchange(quantization.set.model_dir, ""));
  }
  conversion.adapter = quantization.set.adapter;
  quantization.results = conversion.results;
  conversion.check_with(quantization.requested());
  compute.start();
  if (conversion.requested())
    convert_model(conversion, gin_line);
  else
    quantize_model(quantization, gin_line);
  return 0;
}

}  // namespace quintet
