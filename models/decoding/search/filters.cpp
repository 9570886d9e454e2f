#include "models/decoding/search/filters.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/logits/logits.h"

namespace quintet::decoding {

void topk_mask(std::span<float> row, int64_t k, float replacement, std::vector<float>& scratch) {
  const float threshold = kth_largest(row, k, scratch);
  for (float& x : row) x = x >= threshold ? x : replacement;
}

void topp_mask(std::span<float> row, float p, float replacement, std::vector<float>& scratch) {
  if (row.empty()) return;
  const RowSummary summary = summarize(row);
  const float sum = std::exp(summary.log_sum);
  const auto probability = [&](float x) { return std::exp(x - summary.max) / sum; };
  // The candidates grow until they hold the mass asked for: usually the first few hundred do.
  const auto size = static_cast<int64_t>(row.size());
  for (int64_t count = 256;; count *= 16) {
    const bool whole = count >= size;
    const float least =
        whole ? -std::numeric_limits<float>::infinity() : kth_largest(row, count, scratch);
    scratch.clear();
    for (float x : row)
      if (x >= least) scratch.push_back(x);
    std::sort(scratch.begin(), scratch.end(), std::greater<float>());
    double mass = 0;
    float threshold = -1;  // keeps everything: the mass falls short of p by rounding
    for (float x : scratch) {
      mass += static_cast<double>(probability(x));
      if (mass >= static_cast<double>(p)) {
        threshold = probability(x);
        break;
      }
    }
    if (threshold < 0 && !whole) continue;
    for (float& x : row) x = probability(x) >= threshold ? x : replacement;
    return;
  }
}

}  // namespace quintet::decoding
