#pragma once
// What a token's logits come to, and its loss of that: the formulas of cross_entropy.h, in double precision.
//
//   const LossRule rule({.z_loss = 1e-4}, vocabulary);
//   loss += weight * rule.of(statistics_of(logits, vocabulary, target)).loss;

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/base/attrs.h"

namespace quintet::cross_entropy {

/// Over the whole vocabulary or a block of it.
struct TokenStatistics {
  float largest = 0;
  double exponentials = 0;  // sum of exp(logit - largest)
  double sum = 0;           // of the logits
  float target = 0;         // logit of the target; 0 if it is elsewhere
  bool is_correct = false;  // the target is the first largest

  /// Adds up what `count` blocks of the logits, part(0), part(1) ..., have: largest, exponentials and sum.
  template <class Part>
  void add_parts(int64_t count, const Part& part) {
    largest = part(0).largest;
    for (int64_t i = 1; i < count; ++i) largest = std::max(largest, part(i).largest);
    for (int64_t i = 0; i < count; ++i) {
      const auto& p = part(i);
      exponentials += static_cast<double>(p.exponentials) *
                      std::exp(static_cast<double>(p.largest) - static_cast<double>(largest));
      sum += static_cast<double>(p.sum);
    }
  }
  /// log sum exp(logit)
  double lse() const { return static_cast<double>(largest) + std::log(exponentials); }
};

/// Of a row of logits [vocabulary] whose target lies in it.
TokenStatistics statistics_of(const float* logits, int64_t vocabulary, int64_t target);

struct LossFactors {
  double label_smoothing = 0, z_loss = 0;
};

/// A token's, of weight 1.
struct TokenLoss {
  double log_probability = 0;
  double loss = 0, z_loss = 0;  // the first with the second
  double correct = 0;           // 1 or 0
};

struct LossRule {
  double on = 1, off = 0;  // of the smoothed target, and of all else
  double constant = 0;     // the loss of what is smoothed so
  double z_loss = 0;
  int64_t vocabulary = 0;

  /// Throws a usage error for smoothing outside [0, 1).
  LossRule(const LossFactors& factors, int64_t vocabulary_size);
  /// Of the op's `label_smoothing` and `z_loss`.
  LossRule(const Attrs& attrs, int64_t vocabulary_size);
  TokenLoss of(const TokenStatistics& token) const;
};

}  // namespace quintet::cross_entropy
