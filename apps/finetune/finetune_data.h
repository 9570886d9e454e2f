#pragma once
// What the examples of a run are like: how long, how many, whether their targets are a closed set.

#include <map>
#include <string>
#include <vector>

#include "data/batches/batches.h"

namespace quintet {

struct FinetuneSplit {
  struct Uses {
    int64_t count = 0;
    std::string first;  // file and line
  };
  std::vector<int64_t> input_lengths, target_lengths;  // tokens with the end's, of each example
  std::map<std::string, Uses> targets;                 // by their text
  int64_t size() const { return static_cast<int64_t>(input_lengths.size()); }
  /// The length that a share of the examples does not exceed; lengths must not be empty.
  static int64_t percentile(std::vector<int64_t> lengths, double share);
  /// Rows that greedy packing makes of the examples in their order, cut to these lengths.
  int64_t packed_rows(int64_t input_length, int64_t target_length) const;
};

struct FinetuneData {
  FinetuneSplit train, validation;
  size_t tasks = 1;
  int64_t overlap = 0;        // validation examples that are training examples, too
  std::string first_overlap;  // file and line of the first
};

/// Reads both splits of a task, or of a mixture's tasks, once. Throws kData naming file and line for what cannot be read.
FinetuneData read_finetune_data(const data::Provider& provider);

}  // namespace quintet
