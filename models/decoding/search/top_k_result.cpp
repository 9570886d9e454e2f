#include "models/decoding/search/top_k_result.h"

#include <limits>

#include "runtime/base/check.h"

namespace quintet::decoding {

std::vector<TokenLogProb> TopKResult::likeliest(int64_t row, int64_t count) const {
  QT_ASSERT(count <= width);
  std::vector<TokenLogProb> tokens;
  for (int64_t i = row * width; i < row * width + count; ++i) {
    const float each = log_prob(row, values[i]);
    if (!(each > -std::numeric_limits<float>::infinity())) break;
    tokens.push_back({indices[i], each});
  }
  return tokens;
}

}  // namespace quintet::decoding
