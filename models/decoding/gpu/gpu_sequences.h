#pragma once
// Whole sequences on the current device: an encoder's inputs, given targets, and the beginnings of sequences that
// a decoder without encoder reads at once. Matrices in fewer bits are each dequantized for their product: for
// one in a byte 3 bytes a weight are moved beside the 2 that the product reads in bfloat16.

#include <functional>
#include <span>

#include "models/decoding/gpu/gpu_weights.h"
#include "runtime/execution/tape.h"

namespace quintet::decoding {

/// During a training run: nothing is recorded for gradients, and the mesh's rules place nothing.
struct Alone {
  const Tape::Recording paused{nullptr};
  const ContextMember<&ExecutionContext::sharding> unsharded{nullptr};
};

/// Encoder output without dropout. tokens, segments: int32 [batch, length] (segment 0 is padding) ->
/// [batch, length, embed].
Tensor encode(const GpuWeights& weights, const HostArray& tokens, const HostArray& segments);

/// What the model's own evaluation makes of a whole batch of model features (int32 [batch, length]), teacher-forced;
/// experts with its capacities, routers' losses with it. Ranks that hold the network together call it with the same
/// batch and have the same bits. Needs an Alone, as what is made of the result does. Throws kData naming a missing
/// feature.
TargetOutput run_targets(const GpuWeights& weights, const HostArrays& batch);

/// Told of each layer's keys and values, [items, length, joined_kv] each.
using PrefixSink = std::function<void(size_t layer, const Tensor& keys, const Tensor& values)>;

/// Runs the layers over tokens [items, length], of which item i has prefix[i]; with `bidirectional`
/// these see each other. What lies behind a prefix is void.
void run_prefix(const GpuWeights& weights, const HostArray& tokens, std::span<const int32_t> prefix,
                bool bidirectional, const PrefixSink& sink);

}  // namespace quintet::decoding
