#pragma once
// The processes of a job that share some work, as the data folder sees them.

#include <functional>
#include <string>
#include <vector>

namespace quintet::data {

struct Peers {
  int rank = 0, size = 1;
  /// Texts of all ranks, in order; returns when all have called it.
  std::function<std::vector<std::string>(const std::string&)> gather = [](const std::string& text) {
    return std::vector{text};
  };
};

}  // namespace quintet::data
