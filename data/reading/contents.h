#pragma once
// What a data set holds, in short: kept with a position, so that a run that goes on notices files
// that have changed in between (row I3 of the fault table).

#include <cstdint>
#include <string>
#include <vector>

namespace quintet::data {

struct Contents {
  int64_t examples = 0;            // of the splits that have an end
  std::vector<std::string> files;  // that they come from, in order

  void add(Contents other);
};

/// 16 hex digits over names (without folders), sizes and a sample of the bytes of files: at most
/// 4,096 blocks in all, at least the first, middle and last of each file. Moving or copying files
/// does not change it. Throws kData for a file that cannot be read.
std::string fingerprint(const std::vector<std::string>& files);

}  // namespace quintet::data
