#pragma once
// Prints what gin files and flags come to: what `quintet config` runs.

#include <string>
#include <vector>

#include "runtime/gin/command_line.h"

namespace quintet {

struct ShowConfigOptions {
  std::string format = "text";  // gin, or json
  bool parse_only = false, skip_unknown = false, keep_macros = false, explain = false;
  std::vector<std::string> diff = {};  // two gin files or model directories
};

/// On stdout; unknown names and missing includes on stderr. Throws usage errors of the configuration.
void show_config(const gin::CommandLine& command_line, const ShowConfigOptions& options);

/// Of every binding: which file and line or flag set it, what it replaced, whether anything uses it and why nothing
/// reads it. On stdout, what nothing uses last; the configuration need not be complete.
void explain_config(const gin::CommandLine& command_line, const ShowConfigOptions& options);

/// The names that two gin files or model directories (`options.diff`) bind to different values, macros expanded, under
/// the same bindings of `command_line`, on stdout.
void diff_config(const gin::CommandLine& command_line, const ShowConfigOptions& options);

}  // namespace quintet
