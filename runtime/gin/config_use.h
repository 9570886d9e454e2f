#pragma once
// Bindings of the command line that a configuration cannot read, found without calling anything.
//
//   config.load(command_line);
//   check_flags_used(config, {.macros = {"MODEL"}, .configurables = {"t5x.train.train"}});

#include <string>
#include <vector>

#include "runtime/gin/config.h"

namespace quintet::gin {

/// What a program reads without a reference in the gin files.
struct ReadByProgram {
  std::vector<std::string> macros;
  std::vector<std::string> configurables;  // full names; "module." stands for all of a module
};

/// Throws a usage error that lists every binding of the command line that nothing in the
/// configuration reads, with the nearest name that something does: a macro that no parameter
/// reaches, a parameter of a configurable or in a scope that no reference and no gin file names.
void check_flags_used(const Config& config, const ReadByProgram& by_program);

}  // namespace quintet::gin
