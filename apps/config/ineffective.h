#pragma once
// Parameters of T5X and seqio that gin files may bind and nothing here reads: one table of them, each with its reason.
//
//   check_effects(config);   // refuses or warns of bindings that ask for more than the default

#include "runtime/gin/config_use.h"

namespace quintet {

struct ConfiguredModel;
struct RestoreCheckpointConfig;

/// The table; its parameters are registered, with their defaults, where the others of the same configurable are.
const gin::IneffectiveTable& ineffective_parameters();

/// Throws one usage error that lists the bindings that would change results, or that T5X itself refuses, and warns of
/// the others on the first rank's stderr, unless `trained` is the file that binds them. A configuration that skips unknown
/// names warns of all.
void check_effects(const gin::Config& config, const std::string& trained = "");

/// Tells, on the first rank, of the names that a configuration which skips unknown ones has skipped.
void print_unknown(const gin::Config& config);

/// Warns on the first rank of a dtype that the current device does not compute in.
void warn_of_dtype(const ConfiguredModel& model);

/// Of eval and infer: warns that they do not take up a position in the data.
void warn_of_ignored(const RestoreCheckpointConfig& restore, const gin::Arguments& args);

}  // namespace quintet
