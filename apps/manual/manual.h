#pragma once
// Manual pages and completion of a shell, made of the flags that --help shows.
//
//   for (const Command& command : all_commands())
//     with_flags(command, [&](const CLI::App& app) { fmt::print("{}", man_page(command, app)); });

#include <functional>
#include <string>
#include <vector>

#include "apps/flags/command.h"

namespace CLI {
class App;
}

namespace quintet {

/// Runs `use` on the flags of a command, which does nothing else.
void with_flags(const Command& command, const std::function<void(const CLI::App&)>& use);

/// "quintet-bench-train", the page of "bench train"; of "" the overview, "quintet".
std::string page_name(const std::string& command);
/// In the man macros of roff.
std::string man_page(const Command& command, const CLI::App& app);
std::string man_overview(const std::vector<Command>& commands);

/// A script to source or to install as share/bash-completion/completions/quintet.
std::string bash_completion(const std::vector<Command>& commands);
/// To install as _quintet in a folder of zsh's fpath.
std::string zsh_completion(const std::vector<Command>& commands);

}  // namespace quintet
