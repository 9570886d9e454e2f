#pragma once
// `quintet interactive`: commands on lines that are typed, piped or a file's.

#include "apps/interactive/interactive_flags.h"
#include "runtime/gin/command_line.h"

namespace quintet {

/// Runs them to the end of the lines. A command that fails says so and the next one is read; the exit code is 75
/// if a signal or the file STOP asked to stop, else that of the first that failed, or 0 where somebody types.
int run_interactive_commands(const InteractiveFlags& flags, const gin::CommandLine& gin_line);

}  // namespace quintet
