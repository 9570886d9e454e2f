#pragma once
// A task's examples for people's eyes: raw, preprocessed, and as the rows a model gets.

#include <cstdio>
#include <optional>

#include "data/batches/batches.h"

namespace quintet::data {

struct ShowOptions {
  std::string split = "train";
  int64_t num = 3;
  Lengths lengths = {};  // empty: 512 for inputs, 114 for targets, 512 for others (T5's own)
  bool pack = true;
  bool best_fit = false;           // rows packed by best fit
  int64_t packed_examples = 2048;  // of which the efficiency of both ways of packing is told
  bool shuffle = false;
  int64_t seed = 0;
  int64_t most_ids = 64;    // of a feature that are printed; as JSON all are
  bool use_cached = false;  // examples of the task's offline cache
  std::vector<std::string> cache_dirs =
      {};             // where caches lie, whose statistics give rates of mixtures
  bool json = false;  // one object a line for each part, example and row
};
/// Throws as the task's stream does.
void show(const Provider& provider, const ShowOptions& options, std::FILE* out);

/// The splits of every task and mixture by name; nothing where its data or vocabulary is not here.
std::vector<std::pair<std::string, std::optional<std::vector<std::string>>>> splits_by_task(
    const TaskRegistry& tasks);

/// The lengths used when none are given.
Lengths default_lengths(const Features& features);

}  // namespace quintet::data
