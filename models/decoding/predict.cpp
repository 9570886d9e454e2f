#include "models/decoding/predict.h"

#include <algorithm>

#include "models/decoding/cpu/transformer_decoder.h"

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
  DecodeFn given = options.decode_fn;
  if (initial_index != nullptr)
    std::visit([&](auto& fn) { fn.initial_index = *initial_index; }, given);
  if (const auto* beam = std::get_if<BeamOptions>(&given))
    return beam_search(prompts, model, options.eos_id, *beam);
  if (const auto* sample = std::get_if<SampleOptions>(&given))
    return temperature_sample(prompts, model, options.eos_id, *sample);
  const auto& own = std::get<OwnDecodeFn>(given);
  return own.search(prompts, model, options.eos_id, own);
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
                {.num_decodes = decodes_of(options),
                 .max_length = targets.length,
                 .type = options.cache_type});
  return search({targets.batch, targets.length, prompt}, decoder, options, nullptr);
}

/// What the rows of all requests take of a cache.
CacheOptions cache_for(const std::vector<DecodingRequest>& requests, CacheType type) {
  CacheOptions cache{.type = type};
  for (const DecodingRequest& request : requests) {
    cache.num_decodes = std::max(cache.num_decodes, rows_of(request));
    cache.max_length = std::max<int64_t>(cache.max_length,
                                         std::ssize(request.prompt) + request.rules.max_new_tokens);
  }
  return cache;
}

template <class Decoder>
Answers answer_with(Decoder& decoder, const HostArrays& batch, const PredictOptions& options,
                    std::vector<DecodingRequest> requests) {
  const Feature inputs = feature(batch, "encoder_input_tokens");
  QT_ASSERT(inputs.batch == std::ssize(requests));
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto row = inputs.tokens.subspan(i * static_cast<size_t>(inputs.length),
                                           static_cast<size_t>(inputs.length));
    // Padding is that of the longest of the batch: rules on inputs do not see it.
    const auto last = std::find_if(row.rbegin(), row.rend(), [](int32_t id) { return id != 0; });
    requests[i].inputs.assign(row.begin(), last.base());
  }
  const CacheOptions cache = cache_for(requests, options.cache_type);
  decoder.begin(inputs.tokens, inputs.batch, inputs.length, cache);
  return generate(decoder, requests, cache.num_decodes);
}

/// A decoder-only batch: its prefixes, and how much of each the cache is filled with.
struct Prefixes {
  int64_t batch = 0, length = 0;
  std::vector<int32_t> tokens;         // [batch, length], 0 after the prefix
  std::vector<int32_t> prefix;         // [batch] tokens that are marked, the start token too
  std::vector<int32_t> initial_index;  // [batch] tokens after the start token
};

Prefixes prefixes_of(const HostArrays& batch) {
  const Feature tokens = feature(batch, "decoder_input_tokens");
  const Feature causal = feature(batch, "decoder_causal_attention");
  QT_CHECK_AS(
      ExitCode::kData, tokens.batch == causal.batch && tokens.length == causal.length,
      "predict: decoder_input_tokens [{}, {}] and decoder_causal_attention [{}, {}] must have "
      "one shape",
      tokens.batch, tokens.length, causal.batch, causal.length);
  Prefixes p{.batch = tokens.batch,
             .length = tokens.length,
             .tokens = std::vector<int32_t>(tokens.tokens.size()),
             .prefix = {},
             .initial_index = {}};
  for (int64_t i = 0; i < p.batch; ++i) {
    int32_t marked = 0, count = 0;
    for (int64_t t = 0; t < p.length; ++t) {
      const auto at = static_cast<size_t>(i * p.length + t);
      p.tokens[at] = tokens.tokens[at] * causal.tokens[at];
      marked += causal.tokens[at] != 0;
      count += t > 0 && p.tokens[at] != 0;
    }
    p.prefix.push_back(marked);
    p.initial_index.push_back(count);
  }
  return p;
}

template <class Decoder>
Answers answer_prefixes(Decoder& decoder, const HostArrays& batch, const PredictOptions& options,
                        std::vector<DecodingRequest> requests) {
  const Prefixes p = prefixes_of(batch);
  QT_ASSERT(p.batch == std::ssize(requests));
  for (int64_t i = 0; i < p.batch; ++i) {
    DecodingRequest& request = requests[static_cast<size_t>(i)];
    const int32_t count = p.initial_index[static_cast<size_t>(i)];
    const auto row = p.tokens.begin() + i * p.length;
    request.prompt.assign(row, row + count + 1);
    request.prefilled = count;
  }
  const CacheOptions cache = cache_for(requests, options.cache_type);
  decoder.begin_prefix(p.tokens, p.batch, p.length, p.prefix,
                       options.inputs_bidirectional_attention, cache);
  return generate(decoder, requests, cache.num_decodes);
}

template <class Decoder>
Decodes predict_prefixes(Decoder& decoder, const HostArrays& batch, const PredictOptions& options) {
  const Prefixes p = prefixes_of(batch);
  decoder.begin_prefix(
      p.tokens, p.batch, p.length, p.prefix, options.inputs_bidirectional_attention,
      {.num_decodes = decodes_of(options), .max_length = p.length, .type = options.cache_type});
  Decodes out = search({p.batch, p.length, p.tokens}, decoder, options, &p.initial_index);
  for (int64_t i = 0; i < out.batch; ++i)
    for (int64_t d = 0; d < out.num_decodes; ++d) {
      const auto row = out.tokens.begin() + (i * out.num_decodes + d) * out.length;
      const int64_t cut = std::min<int64_t>(p.initial_index[static_cast<size_t>(i)], out.length);
      std::fill(std::copy(row + cut, row + out.length, row), row + out.length, 0);
    }
  return out;
}

}  // namespace

Answers answer_encoder_decoder(const PackedNetwork& network, const HostArrays& batch,
                               const PredictOptions& options,
                               std::vector<DecodingRequest> requests) {
  TransformerDecoder decoder(network);
  return answer_with(decoder, batch, options, std::move(requests));
}

Answers answer_encoder_decoder(GpuDecoder& decoder, const HostArrays& batch,
                               const PredictOptions& options,
                               std::vector<DecodingRequest> requests) {
  return answer_with(decoder, batch, options, std::move(requests));
}

Answers answer_decoder_only(const PackedNetwork& network, const HostArrays& batch,
                            const PredictOptions& options, std::vector<DecodingRequest> requests) {
  TransformerDecoder decoder(network);
  return answer_prefixes(decoder, batch, options, std::move(requests));
}

Answers answer_decoder_only(GpuDecoder& decoder, const HostArrays& batch,
                            const PredictOptions& options, std::vector<DecodingRequest> requests) {
  return answer_prefixes(decoder, batch, options, std::move(requests));
}

Decodes predict_encoder_decoder(const PackedNetwork& network, const HostArrays& batch,
                                const PredictOptions& options) {
  TransformerDecoder decoder(network);
  return predict_with(decoder, batch, options);
}

Decodes predict_encoder_decoder(GpuDecoder& decoder, const HostArrays& batch,
                                const PredictOptions& options) {
  return predict_with(decoder, batch, options);
}

Decodes predict_decoder_only(const PackedNetwork& network, const HostArrays& batch,
                             const PredictOptions& options) {
  TransformerDecoder decoder(network);
  return predict_prefixes(decoder, batch, options);
}

Decodes predict_decoder_only(GpuDecoder& decoder, const HostArrays& batch,
                             const PredictOptions& options) {
  return predict_prefixes(decoder, batch, options);
}

}  // namespace quintet::decoding
