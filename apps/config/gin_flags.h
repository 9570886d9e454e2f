#pragma once
// What the verbs read of a configuration by name.

#include "runtime/gin/config_use.h"

namespace quintet {

/// Entry points, what they call by name, what T5's own tasks are made of, and `macros`, which the
/// verb reads by name.
gin::ReadByProgram read_by_program(std::vector<std::string> macros);

/// Whether a configuration asks for verify_matching_vocabs (apps/input/run_vocabularies.h), by
/// `function`.verify_matching_vocabs_fn: unless it is None.
bool verifies_vocabs(const gin::Config& config, const std::string& function = "t5x.train.train");

}  // namespace quintet
