#pragma once
// A network made of random numbers, for searches on the device and on the host.

#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/base/threefry.h"

namespace quintet::testing {

struct RandomNetwork {
  int64_t items, decodes, vocab;
  float step_of_logits = 0;   // logits are multiples of it, so that many are equal; 0: any
  float end = 1;              // what the end token's logit has more than others
  float nan_from = INFINITY;  // logits above are NaN
  float spread = 8;           // logits are from 0 to this

  int64_t rows() const { return items * decodes; }
  /// Logits after a sequence.
  std::vector<float> logits(int64_t item, const std::vector<int32_t>& sequence) const {
    Key key = fold_in(key_from_seed(7), static_cast<uint32_t>(item));
    for (const int32_t token : sequence) key = fold_in(key, static_cast<uint32_t>(token));
    std::vector<float> row;
    for (int64_t v = 0; v < vocab; ++v) {
      float x = spread * random_uniform(random_bits(key, static_cast<uint64_t>(v)));
      if (step_of_logits > 0) x = std::floor(x / step_of_logits) * step_of_logits;
      if (v == 1) x += end;
      row.push_back(x > nan_from ? NAN : x);
    }
    return row;
  }
};

/// Decoder inputs without a prompt: [items, length] zeros.
inline std::vector<int32_t> free_prompts(int64_t items, int64_t length) {
  return std::vector<int32_t>(static_cast<size_t>(items * length));
}

}  // namespace quintet::testing
