#include "apps/interactive/interactive_flags.h"

#include "apps/flags/command_line.h"

namespace quintet {

void InteractiveFlags::add_to(CLI::App& app) {
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  app.add_option(
         "MODEL,--model_dir,--model", model_dir,
         "the model that is begun with: a run's directory, a checkpoint of any program, or "
         "a Hugging Face directory; without it --gin_file names a model with new parameters")
      ->transform(mapped_path);
  app.add_option("--output_dir", output_dir,
                 "the folder that 'save' and the end write checkpoints and metrics into; the same "
                 "command again goes on from its newest checkpoint; default: nothing is kept")
      ->transform(mapped_path);
  app.add_option("--commands", commands, "a file of commands; - or none: standard input");
  format.add_to(app);
  app.add_option("--batch_size", batch_size, "examples of a batch, at most")->check(positive);
  app.add_option("--learning_rate", learning_rate,
                 "of T5X's optimizers: the same at every step; Adafactor's is relative to the size "
                 "of each parameter")
      ->check(CLI::PositiveNumber);
  app.add_option("--input", input,
                 "the field of a file's examples that the model reads; default: input or inputs");
  app.add_option("--target", target, "the field that it answers; default: target or targets");
  app.add_option(
         "--max_input_length", input_length,
         "tokens of an input, of which the rest is cut off; default: as in the run's training "
         "or evaluation, else 1024")
      ->check(positive);
  app.add_option(
         "--max_target_length", target_length,
         "tokens of a target and of an answer, likewise; default: as in the run's training or "
         "evaluation, else 128")
      ->check(positive);
  app.add_option(
         "--num_examples", num_examples,
         "of a file or a task, predict, score and evaluate take at most so many; default: all")
      ->check(positive);
  app.add_option(
      "--seed", seed,
      "of new parameters, of dropout and of a task's order; default: the run's in --output_dir, "
      "else 0");
  compute.add_to(app);
}

}  // namespace quintet
