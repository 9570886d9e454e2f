#pragma once
// Loss weights and normalising factors of a batch, after t5x/losses.py and utils.

#include <string>
#include <variant>

#include "runtime/base/host_array.h"

namespace quintet {

/// What the summed loss is divided by: nothing, a number, or something counted in the whole batch.
enum class SpecialLossNormalizingFactor {
  kNumRealTargetTokens,   // sum of the loss weights
  kNumTotalTargetTokens,  // all target positions, padding too
  kAveragePerSequence,    // each (packed) sequence weighs the same
};
using LossNormalizingFactor = std::variant<std::monostate, double, SpecialLossNormalizingFactor>;

/// "NUM_REAL_TARGET_TOKENS", "NUM_TOTAL_TARGET_TOKENS" or "AVERAGE_PER_SEQUENCE"; throws otherwise.
SpecialLossNormalizingFactor special_factor_from_name(const std::string& name);

struct LossWeights {
  HostArray weights;  // float32 [batch, length], before the division
  double factor = 1;  // what the summed loss is divided by
};

/// Numbers of a microbatch in a batch's kStepCounts: the sum of its loss weights, those that are not
/// 0, and tokens and examples of at most two features.
inline constexpr size_t kLossCounts = 6;

/// The weights of this rank's rows, the factor of all. From the features decoder_target_tokens,
/// decoder_loss_weights (where absent: targets > 0) and, for AVERAGE_PER_SEQUENCE of packed batches,
/// decoder_segment_ids. Throws kData naming a missing feature, and when the factor is zero.
LossWeights loss_weights(const HostArrays& batch, const LossNormalizingFactor& factor);
/// The weights alone, which asks no other rank.
HostArray unscaled_loss_weights(const HostArrays& batch, const LossNormalizingFactor& factor);

}  // namespace quintet
