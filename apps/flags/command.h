#pragma once
// What the program can be asked to do.

#include <span>
#include <string>

namespace quintet {

/// A verb, or a part of one with flags of its own: "train", "bench train".
struct Command {
  std::string name, summary;
  int (*run)(std::span<char* const> args);
};

}  // namespace quintet
