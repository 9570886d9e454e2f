#include "models/decoding/predict.h"

#include <algorithm>

#include "models/decoding/transformer_decoder.h"

namespace quintet::decoding {
namespace {

struct Feature {
  std::span<const int32_t> tokens;
  int64_t batch = 0, length = 0;
};

Feature feature(const HostArrays& batch, const std::string& name) {
  const auto found = batch.find(name);
  QT_CHECK_AS(
      ExitCode::kData, found != batch.end(),
      "predict: the batch has no feature {}; does the task's feature converter fit the model?",
      name);
  const HostArray& array = found->second;
  QT_CHECK_AS(ExitCode::kData, array.dtype == DType::i32 && array.shape.size() == 2,
              "predict: feature {} must be int32 [batch, length], found {} of rank {}", name,
              name_of(array.dtype), array.shape.size());
  return {array.as<int32_t>(), array.shape[0], array.shape[1]};
}

int64_t decodes_of(const PredictOptions& options) {
  return std::visit([](const auto& fn) { return fn.num_decodes; }, options.decode_fn);
}

Decodes search(const Prompts& prompts, TokenModel& model, const PredictOptions& options,
               const std::vector<int32_t>* initial_index) {
  if (const auto* beam = std::get_if<BeamOptions>(&options.decode_fn)) {
    BeamOptions given = *beam;
    if (initial_index != nullptr) given.initial_index = *initial_index;
    return beam_search(prompts, model, options.eos_id, given);
  }
  SampleOptions given = std::get<SampleOptions>(options.decode_fn);
  if (initial_index != nullptr) given.initial_index = *initial_index;
  return temperature_sample(prompts, model, options.eos_id, given);
}

template <class Decoder>
Decodes predict_with(Decoder& decoder, const HostArrays& batch, const PredictOptions& options) {
  const Feature inputs = feature(batch, "encoder_input_tokens");
  const Feature targets = feature(batch, "decoder_input_tokens");
  QT_CHECK_AS(ExitCode::kData, inputs.batch == targets.batch,
              "predict: encoder_input_tokens has {} rows, decoder_input_tokens {}", inputs.batch,
              targets.batch);
  std::vector<int32_t> prompt(targets.tokens.size(), 0);
  if (options.prompt_with_targets)
    std::transform(targets.tokens.begin(), targets.tokens.end(), prompt.begin(),
                   [&](int32_t t) { return t == options.eos_id ? 0 : t; });
  decoder.begin(inputs.tokens, inputs.batch, inputs.length,
                {.num_decodes = decodes_of(options), .max_length = targets.length});
  return search({targets.batch, targets.length, prompt}, decoder, options, nullptr);
}

}  // namespace

Decodes predict_encoder_decoder(const PackedNetwork& network, const HostArrays& batch,
                                const PredictOptions& options) {
  TransformerDecoder decoder(network);
  return predict_with(decoder, batch, options);
}

Decodes predict_encoder_decoder(DeviceDecoder& decoder, const HostArrays& batch,
                                const PredictOptions& options) {
  return predict_with(decoder, batch, options);
}

Decodes predict_decoder_only(const PackedNetwork& network, const HostArrays& batch,
                             const PredictOptions& options) {
  const Feature tokens = feature(batch, "decoder_input_tokens");
  const Feature causal = feature(batch, "decoder_causal_attention");
  QT_CHECK_AS(
      ExitCode::kData, tokens.batch == causal.batch && tokens.length == causal.length,
      "predict: decoder_input_tokens [{}, {}] and decoder_causal_attention [{}, {}] must have "
      "one shape",
      tokens.batch, tokens.length, causal.batch, causal.length);
  const int64_t length = tokens.length;
  std::vector<int32_t> inputs(tokens.tokens.size());
  std::vector<int32_t> prefix, initial_index;
  for (int64_t i = 0; i < tokens.batch; ++i) {
    int32_t marked = 0, count = 0;
    for (int64_t t = 0; t < length; ++t) {
      const auto at = static_cast<size_t>(i * length + t);
      inputs[at] = tokens.tokens[at] * causal.tokens[at];
      marked += causal.tokens[at] != 0;
      count += t > 0 && inputs[at] != 0;
    }
    prefix.push_back(marked);
    initial_index.push_back(count);
  }
  TransformerDecoder decoder(network);
  decoder.begin_prefix(inputs, tokens.batch, length, prefix, options.inputs_bidirectional_attention,
                       {.num_decodes = decodes_of(options), .max_length = length});
  Decodes out = search({tokens.batch, length, inputs}, decoder, options, &initial_index);
  for (int64_t i = 0; i < out.batch; ++i)
    for (int64_t d = 0; d < out.num_decodes; ++d) {
      const auto row = out.tokens.begin() + (i * out.num_decodes + d) * out.length;
      const int64_t cut = std::min<int64_t>(initial_index[static_cast<size_t>(i)], out.length);
      std::fill(std::copy(row + cut, row + out.length, row), row + out.length, 0);
    }
  return out;
}

}  // namespace quintet::decoding
