#pragma once
// Prints what gin files and flags come to: what `quintet config` runs.

#include <string>

#include "runtime/gin/command_line.h"

namespace quintet {

struct ShowConfigOptions {
  std::string format = "text";  // gin, or json
  bool parse_only = false, skip_unknown = false, keep_macros = false;
};

/// On stdout; unknown names and missing includes on stderr. Throws usage errors of the configuration.
void show_config(const gin::CommandLine& command_line, const ShowConfigOptions& options);

}  // namespace quintet
