#pragma once
// Predictions for a batch: T5X's predict_batch_with_aux of EncoderDecoderModel and
// DecoderOnlyModel.
//
//   const Decodes out =
//       predict_encoder_decoder(network, batch, {.decode_fn = BeamOptions{}, .eos_id = 1});
//   out.best(0)                                            // tokens of item 0, after them padding
//
// Batches are model features as the feature converters make them: int32 [batch, length].

#include "models/decoding/cpu/packed_network.h"
#include "models/decoding/gpu/gpu_decoder.h"
#include "models/decoding/request.h"
#include "models/decoding/search/decode_fn.h"
#include "runtime/base/host_array.h"

namespace quintet::decoding {

struct PredictOptions {
  DecodeFn decode_fn;
  int32_t eos_id = 1;
  /// Encoder-decoder: keep the batch's decoder_input_tokens as a prompt (end tokens taken out).
  bool prompt_with_targets = false;
  /// Decoder-only: tokens of the prefix see each other.
  bool inputs_bidirectional_attention = false;
  CacheType cache_type = CacheType::native;
};

/// Needs encoder_input_tokens and decoder_input_tokens, whose length bounds the output. Throws
/// kData naming a feature that is missing or has another dtype or shape.
Decodes predict_encoder_decoder(const PackedNetwork& network, const HostArrays& batch,
                                const PredictOptions& options);
/// The same on the current device.
Decodes predict_encoder_decoder(GpuDecoder& decoder, const HostArrays& batch,
                                const PredictOptions& options);

/// Needs decoder_input_tokens and decoder_causal_attention (1 on the prefix and the token after it,
/// as seqio's DecoderFeatureConverter makes it); returns what follows the prefix, shifted to the
/// left.
Decodes predict_decoder_only(const PackedNetwork& network, const HostArrays& batch,
                             const PredictOptions& options);
Decodes predict_decoder_only(GpuDecoder& decoder, const HostArrays& batch,
                             const PredictOptions& options);

/// What each request gets, one an item of such a batch. Requests' inputs are the batch's; with a
/// decoder-only network its prefixes are their prompts. Of the options those that are not about a search.
using Answers = std::vector<std::vector<Hypothesis>>;
Answers answer_encoder_decoder(const PackedNetwork& network, const HostArrays& batch,
                               const PredictOptions& options,
                               std::vector<DecodingRequest> requests);
Answers answer_encoder_decoder(GpuDecoder& decoder, const HostArrays& batch,
                               const PredictOptions& options,
                               std::vector<DecodingRequest> requests);
Answers answer_decoder_only(const PackedNetwork& network, const HostArrays& batch,
                            const PredictOptions& options, std::vector<DecodingRequest> requests);
Answers answer_decoder_only(GpuDecoder& decoder, const HostArrays& batch,
                            const PredictOptions& options, std::vector<DecodingRequest> requests);

}  // namespace quintet::decoding
