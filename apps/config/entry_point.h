#pragma once
// Runs an entry point of T5X's scripts as gin files configure it.
//
//   return run_entry_point(EntryPoint::infer, command_line, prepare,
//                          [&](GinSession& session, const gin::Arguments& arguments) {
//                            return run_inference(inference_config_from(arguments), ...);
//                          });

#include "apps/config/gin_session.h"

namespace quintet {

enum class EntryPoint { train, evaluate, infer, save, precompile };

/// "t5x.train.train", "t5x.eval.evaluate", "t5x.infer.infer", "t5x.export_lib.save", "t5x.precompile.precompile".
std::string name_of(EntryPoint entry_point);

/// Loads the configuration, calls `prepare` with it and, if that is true, the entry point, whose body
/// gets the arguments bound to it and returns the exit code. 0 if `prepare` is false. Throws usage
/// errors of the configuration.
int run_entry_point(EntryPoint entry_point, const gin::CommandLine& command_line,
                    const std::function<bool(GinSession&)>& prepare,
                    const std::function<int(GinSession&, const gin::Arguments&)>& body);

/// What --dry_run does instead of the entry point, on the first rank. False, as `prepare` says that nothing is called.
bool print_configuration(GinSession& session, bool leads = true);

}  // namespace quintet
