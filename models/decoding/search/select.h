#pragma once
// What a search needs of all rows of a step's logits at once. The vocabulary is cut as the output
// projection was, so that each thread reads the columns it has just written: rows cut over threads
// took 0.9 ms for 32 x 32128 where this takes 0.4 (2 Emerald Rapids cores), as half of each row lay
// in the other core's cache.
//
//   for (const RowSelection& row : select(logits, rows, vocab, {.count = 8})) ...
//
// Sums over the vocabulary are taken part by part: they depend on the number of threads, by
// rounding.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/logits/logits.h"

namespace quintet::decoding {

struct SelectOptions {
  int64_t count = 0;     // how many of the largest elements to find; 0: only the maximum
  bool log_sums = true;  // whether RowSummary::log_sum is wanted
  /// [rows] magnitude of what is added to the row's log probabilities before they are compared;
  /// empty: 0.
  std::span<const float> offsets = {};
};

struct RowSelection {
  RowSummary summary;
  /// Indices, increasing, that contain the `count` largest elements and all that adding the offset
  /// and rounding could make equal to the last of them.
  std::vector<int32_t> candidates;
  std::vector<float> values;  // of the candidates; left empty by select()
};

/// How far below the `count`-th largest element `least` those lie that may become equal to it.
float tie_margin(float offset, float max, float least);

/// logits: [rows, vocab].
std::vector<RowSelection> select(std::span<const float> logits, int64_t rows, int64_t vocab,
                                 const SelectOptions& options);

}  // namespace quintet::decoding
