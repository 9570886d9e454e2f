#pragma once
// Where the values of a configuration come from.
//
//   for (const Explained& e : explain(config, by_program))
//     fmt::print("{} = {}  # {}\n", e.name, e.value.repr(), e.place);

#include <string>
#include <vector>

#include "runtime/gin/config_use.h"

namespace quintet::gin {

/// What one name is bound to.
struct Explained {
  struct Shadowed {
    Value value;
    std::string place;
  };
  std::string name;                // "scope/full.name.parameter", or a macro's
  Value written;                   // perhaps a macro
  Value value;                     // what the macro stands for
  std::string place;               // "file.gin:12", or the flag: "--gin.NAME=VALUE"
  std::vector<Shadowed> shadowed;  // what it replaced, the newest first
  bool is_used = true;             // reached by references and macros from what the program reads
};

/// All bindings, macros first, each in the order in which its name was first bound. The configuration need not be
/// complete.
std::vector<Explained> explain(const Config& config, const ReadByProgram& by_program);

}  // namespace quintet::gin
