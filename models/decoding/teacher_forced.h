#pragma once
// Given targets as whole sequences: all are computed in one pass, by one rank or by those that hold a network
// together, to the same bits. (scoring.h scores targets as a search, beside others that generate.)
//
//   const HostArray log_probs = target_log_probs(network, batch, weights);    // [batch, length]
//   const Metrics metrics = eval_metrics(model, network, batch);              // {"loss": ...}

#include <span>
#include <vector>

#include "kernels/cross_entropy/token_loss.h"
#include "models/base_model.h"
#include "models/decoding/cpu/packed_network.h"
#include "models/decoding/gpu/gpu_weights.h"

namespace quintet::decoding {

using cross_entropy::LossFactors;
using cross_entropy::TokenLoss;

/// A target's place in [batch, length], and its loss of weight 1.
struct TargetLoss {
  int64_t place = 0;
  TokenLoss loss;
};

/// Of each target whose loss weight [batch, length] is not 0, row by row, in a batch of model features (int32 [batch,
/// length], not packed), with T5X's masks. Of a network in float32; experts serve the whole batch, padding too, with the
/// capacities of evaluation, and `routings` gets what their losses need. Ranks that hold the network together all call it
/// with the same batch, and all have the result. Throws kData for a missing feature and a token outside the vocabulary.
std::vector<TargetLoss> target_losses(const PackedNetwork& network, const HostArrays& batch,
                                      std::span<const float> weights, const LossFactors& factors,
                                      std::vector<LayerRouting>* routings = nullptr);

/// Log-probabilities of the same targets: float32 [batch, length]; -0 where nothing is computed.
HostArray target_log_probs(const PackedNetwork& network, const HostArrays& batch,
                           std::span<const float> weights);

/// BaseModel::score_tokens of the network.
BaseModel::TokenScores score_tokens(const PackedNetwork& network, const HostArrays& batch);
BaseModel::TokenScores score_tokens(const GpuWeights& network, const HostArrays& batch);

/// BaseModel::eval_fn of the model whose parameters the network has.
Metrics eval_metrics(const BaseModel& model, const PackedNetwork& network, const HostArrays& batch);
Metrics eval_metrics(const BaseModel& model, const GpuWeights& network, const HostArrays& batch);

}  // namespace quintet::decoding
