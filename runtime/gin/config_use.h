#pragma once
// Bindings of the command line that a configuration cannot read, found without calling anything.
//
//   config.load(command_line);
//   check_flags_used(config, {.macros = {"MODEL"}, .configurables = {"t5x.train.train"}});

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/gin/config.h"

namespace quintet::gin {

/// What a program reads without a reference in the gin files.
struct ReadByProgram {
  std::vector<std::string> macros;
  std::vector<std::string> configurables;  // full names; "module." stands for all of a module
  bool reads(const std::string& configurable) const;
};

/// Throws a usage error that lists every binding of the command line that nothing in the
/// configuration reads, with the nearest name that something does: a macro that no parameter
/// reaches, a parameter of a configurable or in a scope that no reference and no gin file names.
void check_flags_used(const Config& config, const ReadByProgram& by_program);

/// Why nothing reads a parameter that the original has.
struct Ineffective {
  enum class Verdict {
    warned,   // changes no result: another value than the default is worth a warning
    refused,  // would change results: another value than the default is an error
    removed   // the original has it no more and refuses it: any value is an error
  };
  Verdict verdict = Verdict::warned;
  std::string reason;  // ends a sentence: "parameters are float32 in memory"
  /// Whether a value, macros expanded, asks for no more than the default does; may be empty.
  std::function<bool(const Value&, const Config&)> is_met;
};
using IneffectiveTable = std::map<std::string, Ineffective>;  // "full.name.parameter"

/// A binding that nothing here reads, to more than the parameter's default asks for.
struct IneffectiveBinding {
  std::string place;  // "file.gin:12", or the flag
  std::string name;   // "scope/full.name.parameter"
  Value value;        // macros expanded
  Ineffective::Verdict verdict;
  std::string reason;
};

/// Those of a configuration, in the order bound.
std::vector<IneffectiveBinding> ineffective_bindings(const Config& config,
                                                     const IneffectiveTable& table);

}  // namespace quintet::gin
