// `quintet generate`: text in, text out, by a trained model.

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "apps/generate/generator.h"
#include "apps/model/trained_dataset.h"
#include "runtime/base/check.h"
#include "runtime/gin/command_line.h"

namespace quintet {
namespace {

void add_flags(CommandLine& cli, GenerateFlags& flags) {
  CLI::App& app = cli.app();
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 30);
  app.add_option("--model_dir,--model", flags.model_dir,
                 "the directory of a training run, a checkpoint of any program, or a Hugging Face "
                 "directory; without the flag, the first TEXT");
  add_adapter_flag(app, flags.adapter);
  app.add_option("text", flags.texts, "inputs; without any, lines of --input or standard input");
  app.add_option("--input", flags.input, "a file of inputs, one per line; - is standard input");
  flags.format.add_to(app);
  app.add_flag("--ids", flags.ids, "inputs, --target and answers are token ids: '12 7 1'");
  app.add_option("--target", flags.target,
                 "score this answer: the sum of its tokens' log probabilities");
  app.add_option("--embed", flags.embed,
                 "print the encoder's output instead of answers (the default), as JSON: the mean "
                 "over the tokens, or "
                 "each token's")
      ->check(CLI::IsMember({"mean", "tokens"}));
  flags.generation.add_to(app);
  flags.generation.drafts.add_to(app);
  app.add_option("--batch_size", flags.batch_size, "inputs per batch")->check(positive);
  flags.quantize.add_to(app);
  flags.cache.add_to(app);
  flags.compute.add_to(app);
  flags.ranks.add_to(app);
  describe_gin_flags(app, kGinFileOfModel);
}

}  // namespace

int run_generate(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  const gin::CommandLine gin_line = gin::extract_command_line(left);
  GenerateFlags flags;
  CommandLine cli(
      "generate", "Prints a trained model's answers to texts, their scores, or embeddings.",
      "quintet generate /tmp/numbers 'words: 1234'\n"
      "quintet generate --model_dir=/tmp/numbers --input=questions.txt --format=json\n"
      "quintet generate --model_dir=/tmp/numbers --beams=4 --num_decodes=4 'words: 17'\n"
      "quintet generate --model_dir=/tmp/numbers --format=json --logprobs=2 --stop=' ' 'words: "
      "17'\n"
      "quintet generate --model_dir=/tmp/numbers --ids --format=json --beams=4 '12 7 1'\n"
      "quintet generate --model_dir=/tmp/numbers --prompt_lookup_num_tokens=4 'words: 1234'\n"
      "mpirun -n 2 quintet generate --model_dir=/tmp/numbers 'words: 1234'\n"
      "echo 'number: ten' | quintet generate --model_dir=/tmp/numbers --temperature=0.7");
  add_flags(cli, flags);
  if (!cli.parse(left)) return 0;
  flags.take_model();
  flags.generation.check();
  QT_CHECK(flags.texts.empty() || flags.input.empty(),
           "quintet generate: give inputs as arguments or with --input, not both");
  flags.check_embed();
  QT_CHECK(flags.target.empty() || flags.generation.drafts.tokens() == 0,
           "quintet generate: --target is an answer that is given; leave out --assistant_model and "
           "--prompt_lookup_num_tokens, which guess");
  Ranks ranks(flags.ranks);
  ranks.agree_on_program(fmt::format("{}", fmt::join(args, "\n")));
  flags.compute.start();
  ranks.open(Device::current());
  generate(flags, ranks, gin_line);
  return 0;
}

}  // namespace quintet
