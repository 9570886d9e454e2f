#pragma once
// The gin part of a command line, the same for all verbs, in T5X's words:
//   --gin_file=F (repeat)  --gin_bindings='NAME = 1' (repeat)  --gin.NAME=VALUE  --gin_search_paths=A,B
//   --skip_unknown, --allow_commands, which are ours
//
//   gin::CommandLine line = gin::extract_command_line(args);   // removes them from args
//   CLI11 then parses what is left.

#include <span>
#include <string>
#include <vector>

namespace quintet::gin {

struct CommandLine {
  std::vector<std::string> files;
  std::vector<std::string> bindings;  // "NAME = VALUE", in order
  std::vector<std::string> search_paths = {"."};
  bool skip_unknown =
      false;  // names that are not there, and bindings that cannot be met, are warned of
  bool allow_commands = false;  // of a model directory's own configuration
};

/// '--gin.NAME=VALUE' -> '--gin_bindings=NAME = VALUE' (split at the first '='); others unchanged.
/// Throws (exit code 2) for '--gin.NAME' without '='.
std::string rewrite_gin_argument(const std::string& argument);

/// Takes the gin flags out of args ("--flag=value" and "--flag value"); everything after "--"
/// stays.
CommandLine extract_command_line(std::vector<std::string>& args);

}  // namespace quintet::gin
