#pragma once
// What the verbs read of a configuration by name.

#include "runtime/gin/config_use.h"

namespace quintet {

/// Entry points, what they call by name, what T5's own tasks are made of, and `macros`, which the
/// verb reads by name.
gin::ReadByProgram read_by_program(std::vector<std::string> macros);

}  // namespace quintet
