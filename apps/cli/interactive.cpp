// `quintet interactive`: train, ask and evaluate a model by commands, one a line.

#include "apps/interactive/interactive.h"

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/flags/data_flags.h"
#include "runtime/base/check.h"

namespace quintet {

int run_interactive(std::span<char* const> args) {
  std::vector<std::string> left(args.begin(), args.end());
  gin::CommandLine gin_line = extract_data_command_line(left);
  InteractiveFlags flags;
  CommandLine cli(
      "interactive",
      "Trains, asks, scores, evaluates and saves a model by commands, one a line, typed or piped; "
      "'help' lists them.",
      "quintet interactive /tmp/numbers\n"
      "echo 'predict words: 17' | quintet interactive /tmp/numbers --format=json\n"
      "quintet interactive byt5-small --output_dir=/tmp/asked --commands=commands.txt");
  flags.add_to(cli.app());
  describe_gin_flags(cli.app(), kGinFileOfModel);
  describe_data_flags(cli.app());
  if (!cli.parse(left)) return 0;
  QT_CHECK(!flags.model_dir.empty() || !gin_line.files.empty(),
           "quintet interactive: name a model: its directory, or a gin file that binds MODEL with "
           "--gin_file=FILE");
  return run_interactive_commands(flags, gin_line);
}

}  // namespace quintet
