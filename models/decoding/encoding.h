#pragma once
// What an encoder makes of inputs, each by itself: the vectors that cross-attention reads when the same
// inputs are answered, bit for bit.
//
//   const auto encoded = encode_each(network, inputs);         // [tokens, embed] each
//   const std::vector<float> one = mean_of_rows(encoded[0], network.spec().emb_dim());

#include <span>
#include <vector>

#include "models/decoding/cpu/prefill.h"
#include "models/decoding/gpu/gpu_weights.h"

namespace quintet::decoding {

using EncoderInputs = std::span<const std::vector<int32_t>* const>;

/// The inputs one after another; with `causal` a token sees those before it alone.
Sequences joined(EncoderInputs inputs, bool causal);
/// Output of the encoder's layers before the final norm: [tokens of all inputs, embed]. Experts that choose
/// among the tokens of a batch see an input at a time. Throws kData for a token outside the vocabulary.
std::vector<float> run_encoder(const PackedNetwork& network, EncoderInputs inputs);
/// After the final norm: [1, at least as many as tokens, embed].
Tensor run_encoder(const GpuWeights& weights, const std::vector<int32_t>& tokens);

/// Of each input, after the final norm: [tokens, embed].
std::vector<std::vector<float>> encode_each(const PackedNetwork& network, EncoderInputs inputs);
std::vector<std::vector<float>> encode_each(const GpuWeights& weights, EncoderInputs inputs);

/// rows: [n, width] -> [width], added up in double precision.
std::vector<float> mean_of_rows(std::span<const float> rows, int64_t width);
/// int32 [1, length]: the tokens, then zeros up to a multiple of 64, so that products on a GPU are measured for
/// few lengths.
HostArray padded_for_gpu(const std::vector<int32_t>& tokens);

}  // namespace quintet::decoding
