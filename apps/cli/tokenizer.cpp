// `quintet tokenizer train|encode|decode`: SentencePiece models, text to ids and back.

#include "apps/tokenizer/tokenizer.h"

#include "apps/cli/verbs.h"
#include "runtime/base/check.h"
#include "runtime/base/nearest.h"

namespace quintet {
namespace {

const std::vector<Command> kParts = {{"train", "trains a SentencePiece model", run_tokenizer_train},
                                     {"encode", "text to ids", run_tokenizer_encode},
                                     {"decode", "ids to text", run_tokenizer_decode}};

}  // namespace

std::vector<Command> tokenizer_commands() { return kParts; }

int run_tokenizer(std::span<char* const> args) {
  const std::string name = args.empty() ? "" : args[0];
  if (name == "--help" || name == "-h") {
    fmt::print("Usage: quintet tokenizer train|encode|decode [flags]\n\n");
    for (const Command& part : kParts) fmt::print("  {:<8} {}\n", part.name, part.summary);
    fmt::print(
        "\nExamples:\n  quintet tokenizer train --input a.txt --vocab_size 8000 --model_prefix a\n"
        "  quintet tokenizer encode --model a.model --text 'hello world'\n");
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& part : kParts) {
    if (name == part.name) return part.run(args.subspan(1));
    names.emplace_back(part.name);
  }
  fail(ExitCode::kUsage, "quintet tokenizer: expected train, encode or decode, found '{}'{}", name,
       did_you_mean(name, names));
}

}  // namespace quintet
