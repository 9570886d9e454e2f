#pragma once
// Given targets as whole sequences: all are computed in one pass, by one rank or by those that hold a network
// together, to the same bits. (scoring.h scores targets as a search, beside others that generate.)
//
//   const HostArray log_probs = target_log_probs(network, batch, weights);    // [batch, length]

#include <span>

#include "models/decoding/cpu/packed_network.h"
#include "runtime/base/host_array.h"

namespace quintet::decoding {

/// Log-probability of each target of a batch of model features (int32 [batch, length], not packed), with T5X's masks:
/// float32 [batch, length]; where the loss weight [batch, length] is 0 nothing is computed, and -0 is there. Of a
/// network in float32; experts serve the whole batch, padding too, with the capacities of evaluation. Ranks that hold
/// the network together all call it with the same batch, and all have the result. Throws kData for a missing feature
/// and a token outside the vocabulary.
HostArray target_log_probs(const PackedNetwork& network, const HostArrays& batch,
                           std::span<const float> weights);

}  // namespace quintet::decoding
