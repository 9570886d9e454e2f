#include "data/preprocessors/denoise.h"

#include <algorithm>

#include "data/preprocessors/token_preprocessors.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {
constexpr int64_t kLongestChunk = 65536;
constexpr int64_t kJoinedExamples = 128;
}  // namespace

int64_t Unsupervised::examples_joined() const {
  int64_t joined = 1;
  for (const PreprocessorPtr& preprocessor : preprocessors)
    joined = std::max(joined, preprocessor->examples_joined());
  return joined;
}

StreamPtr Unsupervised::apply(StreamPtr input, const PreprocessContext& context) const {
  for (const PreprocessorPtr& preprocessor : preprocessors)
    input = preprocessor->apply(std::move(input), context);
  return input;
}

StreamPtr Denoise::apply(StreamPtr input, const PreprocessContext& context) const {
  QT_CHECK(noise_mask_fn && inputs_fn, "denoise: noise_mask_fn and inputs_fn are required");
  const Feature& targets = context.feature("targets", "denoise");
  const Feature* inputs = find_feature(context.output_features, input_feature_key);
  QT_CHECK(
      inputs == nullptr || *inputs->vocabulary == *targets.vocabulary,
      "denoise: '{}' has vocabulary {}, targets {}; inputs are made of targets, so they must be "
      "the same",
      input_feature_key, inputs->vocabulary->description(), targets.vocabulary->description());
  for (const std::string& key : passthrough_feature_keys)
    QT_CHECK(key != "targets" && key != input_feature_key,
             "denoise: passthrough_feature_keys cannot contain '{}'", key);
  return map_stream(std::move(input), [*this, vocabulary = targets.vocabulary](Example& example) {
    Tokens tokens = std::move(example.tokens("targets"));
    Random random(take_key(example));
    const NoiseMask mask =
        (*noise_mask_fn)(static_cast<int64_t>(tokens.size()), noise_density, random);
    std::vector<Example::Item> items;
    items.reserve(2 + passthrough_feature_keys.size());
    items.emplace_back(input_feature_key, (*inputs_fn)(tokens, mask, *vocabulary, random));
    items.emplace_back("targets", targets_fn ? (*targets_fn)(tokens, mask, *vocabulary, random)
                                             : std::move(tokens));
    for (const std::string& key : passthrough_feature_keys)
      if (Value* value = example.find(key)) items.emplace_back(key, std::move(*value));
    example.items() = std::move(items);
    return true;
  });
}

StreamPtr SpanCorruption::apply(StreamPtr input, const PreprocessContext& context) const {
  const int64_t inputs_length =
      context.length(input_feature_key, "span_corruption") - reserved_for_packing.value_or(0);
  const SpansLengths lengths =
      random_spans_helper(inputs_length, noise_density, mean_noise_span_length, 1, 1);
  QT_CHECK(context.length("targets", "span_corruption") >= lengths.targets_length,
           "span_corruption: inputs of {} make targets of {}, but task_feature_lengths allows {}; "
           "raise the length of targets",
           inputs_length, lengths.targets_length, context.length("targets", "span_corruption"));
  QT_CHECK(
      !merge_examples_to_reduce_padding || passthrough_feature_keys.empty(),
      "span_corruption: passthrough_feature_keys needs merge_examples_to_reduce_padding = False");

  SelectRandomChunk select;
  select.max_length = kLongestChunk;
  select.passthrough_feature_keys = passthrough_feature_keys;
  input = select.apply(std::move(input), context);
  if (merge_examples_to_reduce_padding) {
    ReduceConcatTokens join;
    join.batch_size = kJoinedExamples;
    input = join.apply(std::move(input), context);
  }
  SplitTokens split;
  split.max_tokens_per_segment = lengths.tokens_length;
  split.passthrough_feature_keys = passthrough_feature_keys;
  input = split.apply(std::move(input), context);

  auto mask = std::make_shared<RandomSpansNoiseMask>();
  mask->mean_noise_span_length = mean_noise_span_length;
  Denoise denoise;
  denoise.noise_density = noise_density;
  denoise.noise_mask_fn = mask;
  denoise.inputs_fn = noise_fn("noise_span_to_unique_sentinel");
  denoise.targets_fn = noise_fn("nonnoise_span_to_unique_sentinel");
  denoise.passthrough_feature_keys = passthrough_feature_keys;
  denoise.input_feature_key = input_feature_key;
  return denoise.apply(std::move(input), context);
}

StreamPtr IidDenoising::apply(StreamPtr input, const PreprocessContext& context) const {
  SelectRandomChunk select;
  select.max_length = kLongestChunk;
  Denoise denoise;
  denoise.noise_mask_fn = std::make_shared<IidNoiseMask>();
  denoise.inputs_fn = noise_fn("noise_span_to_unique_sentinel");
  denoise.targets_fn = noise_fn("nonnoise_span_to_unique_sentinel");
  input = select.apply(std::move(input), context);
  input = ReduceConcatTokens{}.apply(std::move(input), context);
  input = SplitTokensToLength{}.apply(std::move(input), context);
  return denoise.apply(std::move(input), context);
}

StreamPtr PrefixLm::apply(StreamPtr input, const PreprocessContext& context) const {
  SelectRandomChunk select;
  select.max_length = kLongestChunk;
  Denoise denoise;
  denoise.noise_density = noise_density;
  denoise.noise_mask_fn = std::make_shared<RandomPrefixNoiseMask>();
  denoise.inputs_fn = noise_fn("drop_nonnoise_tokens");
  denoise.targets_fn = noise_fn("drop_noise_tokens");
  input = select.apply(std::move(input), context);
  input = SplitTokensToLength{}.apply(std::move(input), context);
  return denoise.apply(std::move(input), context);
}

}  // namespace quintet::data
