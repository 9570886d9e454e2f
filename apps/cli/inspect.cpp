// `quintet inspect PATH`: what is in a model directory, a checkpoint or a safetensors file, and
// whether it is still what was written.

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/inspect/inspection.h"

namespace quintet {

int run_inspect(std::span<char* const> args) {
  InspectOptions options;
  CommandLine cli(
      "inspect",
      "Lists the checkpoints of a model directory, or the tensors of a checkpoint, safetensors "
      "file or Hugging Face directory, checks every byte and says whether every number is finite. "
      "Of two of them it tells the differences.",
      "quintet inspect /tmp/numbers\n"
      "quintet inspect /tmp/numbers/checkpoint_1000 --stats\n"
      "quintet inspect /tmp/numbers/checkpoint_0 /tmp/numbers/checkpoint_1000\n"
      "quintet inspect /tmp/numbers --tensor=target/decoder/decoder_norm/scale\n"
      "quintet inspect model.safetensors --format=json");
  cli.app()
      .add_option("path", options.path,
                  "model directory, checkpoint folder, Hugging Face directory or .safetensors file")
      ->required();
  cli.app().add_option("second", options.second, "another, to be compared with the first");
  cli.app().add_option("--tensor", options.tensor, "print this tensor alone");
  cli.app().add_option("--output", options.output, "write it to this .npy file instead");
  cli.app()
      .add_option("--format", options.format, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  cli.app().add_flag("--verify,!--no-verify", options.verify, "check CRCs, not only sizes");
  cli.app().add_flag("--stats", options.stats,
                     "smallest, largest, root mean square, not finite; of a model directory those "
                     "of its newest checkpoint");
  if (!cli.parse(args)) return 0;
  return inspect(options);
}

}  // namespace quintet
