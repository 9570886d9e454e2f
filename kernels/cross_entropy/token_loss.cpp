#include "kernels/cross_entropy/token_loss.h"

#include <vector>

#include "kernels/cross_entropy/rows.h"
#include "runtime/base/check.h"

namespace quintet::cross_entropy {

TokenStatistics statistics_of(const float* logits, int64_t vocabulary, int64_t target) {
  constexpr int64_t kBlock = 512;
  std::vector<RowStatistics> blocks(static_cast<size_t>((vocabulary + kBlock - 1) / kBlock));
  for (size_t b = 0; b < blocks.size(); ++b) {
    const int64_t first = static_cast<int64_t>(b) * kBlock;
    block_statistics(logits + first, 1, std::min(kBlock, vocabulary - first), &blocks[b]);
  }
  TokenStatistics all;
  all.add_parts(std::ssize(blocks), [&](int64_t b) { return blocks[static_cast<size_t>(b)]; });
  all.target = logits[target];
  all.is_correct = all.target == all.largest &&
                   std::find(logits, logits + target, all.largest) == logits + target;
  return all;
}

LossRule::LossRule(const LossFactors& factors, int64_t vocabulary_size)
    : z_loss(factors.z_loss), vocabulary(vocabulary_size) {
  const double smoothing = factors.label_smoothing;
  QT_CHECK(
      smoothing >= 0 && smoothing < 1 && (smoothing == 0 || vocabulary > 1),
      "cross_entropy: label_smoothing {} must be at least 0 and below 1, and 0 for a vocabulary "
      "of {}",
      smoothing, vocabulary);
  const auto others = static_cast<double>(vocabulary - 1);
  on = 1 - smoothing;
  off = smoothing == 0 ? 0 : smoothing / others;
  constant = -(on * std::log(on) + others * off * std::log(off + 1e-20));
}

LossRule::LossRule(const Attrs& attrs, int64_t vocabulary_size)
    : LossRule({.label_smoothing = attrs.get_or<double>("label_smoothing", 0.0),
                .z_loss = attrs.get_or<double>("z_loss", 0.0)},
               vocabulary_size) {}

TokenLoss LossRule::of(const TokenStatistics& token) const {
  const double lse = token.lse(), log_probability = static_cast<double>(token.target) - lse;
  const double all = token.sum - static_cast<double>(vocabulary) * lse;  // of log-probabilities
  const double xent = -(on - off) * log_probability - (off == 0 ? 0 : off * all);
  const double z_part = z_loss == 0 ? 0 : z_loss * lse * lse;
  return {log_probability, xent - constant + z_part, z_part, token.is_correct ? 1.0 : 0.0};
}

}  // namespace quintet::cross_entropy
