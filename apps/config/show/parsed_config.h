#pragma once
// A configuration that may be incomplete, for verbs that look at one instead of running it.
//
//   const auto config = parsed_config(registry, command_line);
//   const gin::Value* rate = config->query("DROPOUT_RATE");

#include <memory>

#include "runtime/gin/command_line.h"
#include "runtime/gin/config.h"
#include "runtime/gin/resolved.h"

namespace quintet {

/// Files and bindings of a command line. Unknown names are skipped (print_unknown tells of them), %gin.REQUIRED and
/// undefined macros may be left. Throws usage errors for files that cannot be read or parsed. `registry` outlives it.
std::unique_ptr<gin::Config> parsed_config(const gin::Registry& registry,
                                           const gin::CommandLine& command_line);

/// Every name that it binds, under its full name, with its value, macros expanded.
gin::NamedValues bound_values(const gin::Config& config);

}  // namespace quintet
