// `quintet completion bash|zsh`: a script for the shell, made of the flags of all verbs.

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/manual/manual.h"

namespace quintet {

int run_completion(std::span<char* const> args) {
  std::string shell;
  CommandLine cli("completion", "Prints a script that completes verbs, flags and their values.",
                  "quintet completion bash > quintet.bash\n"
                  "quintet completion zsh > _quintet");
  cli.app()
      .add_option("shell", shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  if (!cli.parse(args)) return 0;
  fmt::print("{}",
             shell == "bash" ? bash_completion(all_commands()) : zsh_completion(all_commands()));
  return 0;
}

}  // namespace quintet
