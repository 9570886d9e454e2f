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
      "file or Hugging Face directory; verifies every byte and that every number is finite. "
      "With two paths: prints the differences.",
      "quintet inspect /tmp/numbers\n"
      "quintet inspect /tmp/numbers/checkpoint_1000 --stats\n"
      "quintet inspect /tmp/numbers/checkpoint_0 /tmp/numbers/checkpoint_1000\n"
      "quintet inspect /tmp/numbers --tensor=target/decoder/decoder_norm/scale\n"
      "quintet inspect model.safetensors --format=json");
  cli.app()
      .add_option("path,--model_dir,--model", options.path,
                  "model directory, checkpoint folder, Hugging Face directory or .safetensors file")
      ->required()
      ->transform(mapped_path);
  cli.app()
      .add_option("second", options.second, "another one, to compare with the first")
      ->transform(mapped_path);
  cli.app().add_option("--tensor", options.tensor, "print only this tensor");
  cli.app()
      .add_option("--output", options.output, "write the tensor to this .npy file instead")
      ->transform(mapped_path);
  options.format.add_to(cli.app());
  cli.app().add_flag("--verify,!--no_verify", options.verify,
                     "check CRCs, not only sizes; default: yes");
  cli.app().add_flag("--stats", options.stats,
                     "of each tensor, in a model directory of the newest checkpoint: minimum, "
                     "maximum, root mean square, count of non-finite numbers");
  if (!cli.parse(args)) return 0;
  return inspect(options);
}

}  // namespace quintet
