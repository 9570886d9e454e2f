#pragma once
// Whole sequences on the current device: an encoder's inputs, and the beginnings of sequences that a
// decoder without encoder reads at once. Matrices in fewer bits are each dequantized for their product: for
// one in a byte 3 bytes a weight are moved beside the 2 that the product reads in bfloat16.

#include <functional>
#include <span>

#include "models/decoding/gpu/gpu_weights.h"

namespace quintet::decoding {

/// Encoder output without dropout. tokens, segments: int32 [batch, length] (segment 0 is padding) ->
/// [batch, length, embed].
Tensor encode(const GpuWeights& weights, const HostArray& tokens, const HostArray& segments);

/// Told of each layer's keys and values, [items, length, joined_kv] each.
using PrefixSink = std::function<void(size_t layer, const Tensor& keys, const Tensor& values)>;

/// Runs the layers over tokens [items, length], of which item i has prefix[i]; with `bidirectional`
/// these see each other. What lies behind a prefix is void.
void run_prefix(const GpuWeights& weights, const HostArray& tokens, std::span<const int32_t> prefix,
                bool bidirectional, const PrefixSink& sink);

}  // namespace quintet::decoding
