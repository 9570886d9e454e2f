#include "models/loss_weights.h"

#include <map>

#include "runtime/trainer/batch_rows.h"

namespace quintet {
namespace {

/// Divides each weight by the sum over its sequence: a row, or a segment of a packed row.
void average_per_sequence(HostArray& weights, const HostArray* segments) {
  const int64_t length = weights.shape[1];
  const auto w = weights.as<float>();
  for (int64_t row = 0; row < weights.shape[0]; ++row) {
    const auto segment = [&](int64_t i) {
      return segments == nullptr ? 0
                                 : segments->as<int32_t>()[static_cast<size_t>(row * length + i)];
    };
    std::map<int32_t, double> sums;
    for (int64_t i = 0; i < length; ++i)
      sums[segment(i)] += static_cast<double>(w[static_cast<size_t>(row * length + i)]);
    for (int64_t i = 0; i < length; ++i) {
      float& weight = w[static_cast<size_t>(row * length + i)];
      const double sum = sums[segment(i)];
      weight = sum == 0 ? 0.0f : static_cast<float>(static_cast<double>(weight) / sum);
    }
  }
}

/// Over the rows of all ranks, unless they have agreed on it.
double sum(const HostArrays& batch, const HostArray& weights) {
  double total = 0;
  if (const auto counts = batch.find(kStepCounts); counts != batch.end()) {
    const auto agreed = counts->second.as<double>();
    for (size_t i = 0; i < agreed.size(); i += kLossCounts) total += agreed[i];
    return total;
  }
  for (const float w : weights.as<float>()) total += static_cast<double>(w);
  sum_over_batch({&total, 1});
  return total;
}

HostArray as_float(const HostArray& array) {
  HostArray result(DType::f32, array.shape);
  const auto out = result.as<float>();
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = array.dtype == DType::f32 ? array.as<float>()[i]
                                       : static_cast<float>(array.as<int32_t>()[i]);
  return result;
}

}  // namespace

SpecialLossNormalizingFactor special_factor_from_name(const std::string& name) {
  if (name == "NUM_REAL_TARGET_TOKENS") return SpecialLossNormalizingFactor::kNumRealTargetTokens;
  if (name == "NUM_TOTAL_TARGET_TOKENS") return SpecialLossNormalizingFactor::kNumTotalTargetTokens;
  if (name == "AVERAGE_PER_SEQUENCE") return SpecialLossNormalizingFactor::kAveragePerSequence;
  fail(ExitCode::kUsage,
       "loss_normalizing_factor: expected a number, None, 'NUM_REAL_TARGET_TOKENS', "
       "'NUM_TOTAL_TARGET_TOKENS' or 'AVERAGE_PER_SEQUENCE', found '{}'",
       name);
}

HostArray unscaled_loss_weights(const HostArrays& batch, const LossNormalizingFactor& factor) {
  const auto targets = batch.find("decoder_target_tokens");
  QT_CHECK_AS(ExitCode::kData, targets != batch.end() && targets->second.shape.size() == 2,
              "batch: feature decoder_target_tokens [batch, length] is missing");
  HostArray result(DType::f32, targets->second.shape);
  const auto weights = batch.find("decoder_loss_weights");
  if (weights != batch.end()) {
    result = as_float(weights->second);
  } else {
    for (size_t i = 0; i < result.as<float>().size(); ++i)
      result.as<float>()[i] = targets->second.as<int32_t>()[i] > 0 ? 1.0f : 0.0f;
  }
  const auto* special = std::get_if<SpecialLossNormalizingFactor>(&factor);
  if (special != nullptr && *special == SpecialLossNormalizingFactor::kAveragePerSequence) {
    const auto segments = batch.find("decoder_segment_ids");
    average_per_sequence(result, segments == batch.end() ? nullptr : &segments->second);
  }
  return result;
}

LossWeights loss_weights(const HostArrays& batch, const LossNormalizingFactor& factor) {
  LossWeights result{unscaled_loss_weights(batch, factor)};
  if (const auto* number = std::get_if<double>(&factor)) result.factor = *number;
  if (const auto* special = std::get_if<SpecialLossNormalizingFactor>(&factor))
    result.factor = *special == SpecialLossNormalizingFactor::kNumTotalTargetTokens
                        ? static_cast<double>(result.weights.elements() * batch_part().count)
                        : sum(batch, result.weights);
  QT_CHECK_AS(ExitCode::kData, result.factor != 0,
              "loss_normalizing_factor is 0: the batch has no target to take a loss of");
  return result;
}

}  // namespace quintet
