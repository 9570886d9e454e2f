#pragma once
// How long a task's features are, for choosing task_feature_lengths: seqio's inspect_tasks with
// --print_length_statistics.

#include "data/show/show.h"

namespace quintet::data {

struct LengthOptions {
  std::vector<double> percentiles = {0.5, 0.9, 0.95, 0.99};
  int64_t examples = 4096;
};

/// Of sorted values, between neighbours in proportion, as numpy.percentile does; 0 <= p <= 1.
double percentile(const std::vector<int64_t>& sorted, double p);

/// A line or object for each feature: percentiles of its ids in the first examples of show.split, cut to
/// show.lengths. Throws kData if there is no example.
void print_length_statistics(const Provider& provider, const ShowOptions& show,
                             const LengthOptions& options, std::FILE* out);

}  // namespace quintet::data
