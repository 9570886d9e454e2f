#pragma once
// A trained model behind HTTP, from flags to the exit code: what `quintet serve` runs.

#include "apps/serve/serve_flags.h"
#include "runtime/gin/command_line.h"

namespace quintet::serve {

/// Serves until it is asked to stop. `bindings`: gin bindings over the run's. Throws what
/// open_trained_model throws, usage errors for sizes that exclude one another, kEnvironment for a
/// port or a device that fails.
void run_server(ServeFlags flags, const Ranks& ranks, const gin::CommandLine& line);

/// Answers the requests that come on standard input on standard output (pipe.cpp) until it ends. Throws kEnvironment for
/// a device that fails.
void serve_pipe(Service& service);

}  // namespace quintet::serve
