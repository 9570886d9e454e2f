// `quintet man`: manual pages, made of what --help shows.

#include <fmt/ranges.h>

#include <filesystem>

#include "apps/cli/verbs.h"
#include "apps/flags/command_line.h"
#include "apps/manual/manual.h"
#include "runtime/base/check.h"
#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/nearest.h"

namespace quintet {
namespace {

std::string page_of(const Command& command) {
  std::string page;
  with_flags(command, [&](const CLI::App& app) { page = man_page(command, app); });
  return page;
}

}  // namespace

int run_man(std::span<char* const> args) {
  std::vector<std::string> words;
  std::string folder;
  CommandLine cli("man", "Prints a manual page in roff, or writes all of them.",
                  "quintet man train | man -l -\n"
                  "quintet man bench train > quintet-bench-train.1\n"
                  "quintet man --output_dir=/tmp/man1");
  cli.app().add_option("verb", words, "verb of the page; none: the overview");
  cli.app()
      .add_option("--output_dir", folder, "write every page into this folder")
      ->transform(mapped_path);
  if (!cli.parse(args)) return 0;
  const std::vector<Command> commands = all_commands();
  if (!folder.empty()) {
    make_folders(folder);
    atomic_write_file(folder + "/quintet.1", man_overview(commands));
    for (const Command& command : commands)
      atomic_write_file(fmt::format("{}/{}.1", folder, page_name(command.name)), page_of(command));
    return 0;
  }
  const std::string name = fmt::format("{}", fmt::join(words, " "));
  if (name.empty()) fmt::print("{}", man_overview(commands));
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.name == name) {
      fmt::print("{}", page_of(command));
      return 0;
    }
    names.push_back(command.name);
  }
  QT_CHECK(name.empty(), "quintet man: '{}' has no page{}", name, did_you_mean(name, names));
  return 0;
}

}  // namespace quintet
