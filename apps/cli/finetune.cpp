// `quintet finetune`: a model and files of examples to a fine-tuned model, in one command.

#include "apps/finetune/finetune.h"

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"

namespace quintet {

int run_finetune(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  const gin::CommandLine gin_line = extract_data_command_line(left);
  FinetuneFlags flags;
  CommandLine cli(
      "finetune",
      "Fine-tunes a model on examples of your own: writes the gin file that they ask for, prints "
      "it, and trains with it. The same command again resumes the run.",
      "quintet finetune byt5-small --output_dir=/tmp/quiz --train=train.jsonl "
      "--input=question --target=answer\n"
      "quintet finetune byt5-small --output_dir=/tmp/topics --train=train.jsonl "
      "--validation=validation.jsonl --source_prefix='topic: ' --input=question --target=topic "
      "--labels=a,b --epochs=3 --optimizer=adamw --output_format=hf");
  flags.add_to(cli.app());
  describe_gin_flags(cli.app(), kGinFileOfModel);
  describe_data_flags(cli.app());
  if (!cli.parse(left) || !flags.training.launch.check()) return 0;
  return run_finetuning(flags, gin_line, fmt::format("{}", fmt::join(args, "\n")));
}

}  // namespace quintet
