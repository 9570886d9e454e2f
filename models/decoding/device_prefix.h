#pragma once
// The beginnings of sequences that a decoder without encoder reads at once, on the current device.

#include <functional>
#include <span>

#include "models/decoding/device_weights.h"

namespace quintet::decoding {

/// Told of each layer's keys and values, [items, length, joined_kv] each.
using PrefixSink = std::function<void(size_t layer, const Tensor& keys, const Tensor& values)>;

/// Runs the layers over tokens [items, length], of which item i has prefix[i]; with `bidirectional`
/// these see each other. What lies behind a prefix is void.
void run_prefix(const DeviceWeights& weights, const HostArray& tokens,
                std::span<const int32_t> prefix, bool bidirectional, const PrefixSink& sink);

}  // namespace quintet::decoding
