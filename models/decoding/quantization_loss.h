#pragma once
// What fewer bits cost, layer by layer: the error of the weights, and how much the next token's
// distribution changes when one part alone is quantized.
//
//   const PackedNetwork exact(shape, source), small(shape, source, {}, WeightType::int8);
//   for (const QuantizationLoss& loss : quantization_losses(exact, small, inputs, targets))
//     print(loss);

#include "models/decoding/cpu/packed_network.h"

namespace quintet::decoding {

struct QuantizationLoss {
  std::string part;         // "encoder/layers_0", .., "logits"; the last is "all"
  int64_t bytes = 0;        // of its matrices, quantized
  double weight_error = 0;  // |q - w| / |w| over them
  double divergence = 0;    // mean over tokens of KL(exact || quantized), nats
  double changed = 0;       // share of tokens whose likeliest successor is another
};

/// inputs, targets: [items] of ids, every target read by teacher forcing. A decoder-only network
/// reads the inputs as a prefix, which sees itself both ways if it is `bidirectional`.
std::vector<QuantizationLoss> quantization_losses(const PackedNetwork& exact,
                                                  const PackedNetwork& quantized,
                                                  std::span<const std::vector<int32_t>> inputs,
                                                  std::span<const std::vector<int32_t>> targets,
                                                  bool bidirectional = false);

}  // namespace quintet::decoding
