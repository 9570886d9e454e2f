#include "data/preprocessors/denoise.h"

#include <algorithm>
#include <cmath>

#include "data/preprocessors/token_preprocessors.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

constexpr int64_t kLongestChunk = 65536;
constexpr int64_t kJoinedExamples = 128;

/// TensorFlow's tf.round and Python's round: halves go to the even number.
int64_t round_half_even(double x) { return static_cast<int64_t>(std::nearbyint(x)); }
/// float32, as TensorFlow computes the mask's sizes.
int64_t round_half_even(float x) { return static_cast<int64_t>(std::nearbyint(x)); }

/// Lengths of `segments` non-empty parts of `items`, all divisions equally likely.
std::vector<int64_t> random_segmentation(int64_t items, int64_t segments, Random& random) {
  // segments - 1 of the items - 1 places between items, by Floyd's sampling.
  std::vector<uint8_t> cut(static_cast<size_t>(items), 0);
  const int64_t places = items - 1, cuts = std::min(segments - 1, places);
  for (int64_t j = places - cuts; j < places; ++j) {
    const auto place = static_cast<size_t>(random.below(j + 1));
    cut[cut[place] ? static_cast<size_t>(j) : place] = 1;
  }
  std::vector<int64_t> lengths(1, 0);
  lengths.reserve(static_cast<size_t>(segments));
  for (int64_t i = 0; i < items; ++i) {
    ++lengths.back();
    if (i < places && cut[static_cast<size_t>(i)]) lengths.push_back(0);
  }
  return lengths;
}

/// Spans where mask == noise: their first token (only if `keep_first`), or a sentinel, or nothing.
enum class Sentinels { none, same, unique };

Tokens replace_spans(std::span<const int32_t> tokens, const NoiseMask& mask, uint8_t noise,
                     int32_t sentinel, Sentinels sentinels) {
  Tokens out;
  out.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (mask[i] != noise) {
      out.push_back(tokens[i]);
    } else if (sentinels != Sentinels::none && (i == 0 || mask[i - 1] != noise)) {
      out.push_back(sentinel);
      if (sentinels == Sentinels::unique) --sentinel;
    }
  }
  return out;
}

struct SpanFn final : NoiseFn {
  uint8_t noise;
  Sentinels sentinels;
  SpanFn(uint8_t replaced, Sentinels by) : noise(replaced), sentinels(by) {}
  Tokens operator()(std::span<const int32_t> tokens, const NoiseMask& mask,
                    const Vocabulary& vocabulary, Random&) const override {
    return replace_spans(tokens, mask, noise, sentinel_id(vocabulary), sentinels);
  }
};

struct TokenToSentinel final : NoiseFn {
  Tokens operator()(std::span<const int32_t> tokens, const NoiseMask& mask,
                    const Vocabulary& vocabulary, Random&) const override {
    Tokens out(tokens.begin(), tokens.end());
    for (size_t i = 0; i < out.size(); ++i)
      if (mask[i]) out[i] = sentinel_id(vocabulary);
    return out;
  }
};

const std::vector<std::pair<std::string, NoiseFnPtr>>& noise_fns() {
  static const std::vector<std::pair<std::string, NoiseFnPtr>> functions = {
      {"noise_span_to_unique_sentinel", std::make_shared<SpanFn>(1, Sentinels::unique)},
      {"nonnoise_span_to_unique_sentinel", std::make_shared<SpanFn>(0, Sentinels::unique)},
      {"noise_span_to_sentinel", std::make_shared<SpanFn>(1, Sentinels::same)},
      {"nonnoise_span_to_sentinel", std::make_shared<SpanFn>(0, Sentinels::same)},
      {"noise_token_to_sentinel", std::make_shared<TokenToSentinel>()},
      {"drop_noise_tokens", std::make_shared<SpanFn>(1, Sentinels::none)},
      {"drop_nonnoise_tokens", std::make_shared<SpanFn>(0, Sentinels::none)},
  };
  return functions;
}

}  // namespace

int32_t sentinel_id(const Vocabulary& vocabulary) { return vocabulary.vocab_size() - 1; }

NoiseFnPtr noise_fn(std::string_view name) {
  for (const auto& [key, function] : noise_fns())
    if (key == name) return function;
  fail(ExitCode::kUsage, "noise function '{}' is not known; the known ones are {}", name,
       fmt::join(noise_fn_names(), ", "));
}

std::vector<std::string> noise_fn_names() {
  std::vector<std::string> names;
  for (const auto& [name, function] : noise_fns()) names.push_back(name);
  return names;
}

NoiseMask IidNoiseMask::operator()(int64_t length, double noise_density, Random& random) const {
  NoiseMask mask(static_cast<size_t>(length));
  for (uint8_t& noise : mask) noise = random.uniform() < noise_density;
  return mask;
}

NoiseMask RegularNoiseMask::operator()(int64_t length, double noise_density, Random& random) const {
  const int64_t span = min_span_length + random.below(max_span_length - min_span_length + 1);
  const int64_t period = std::max<int64_t>(
      1, round_half_even(static_cast<float>(span) / static_cast<float>(noise_density)));
  const int64_t offset = random.below(period);
  NoiseMask mask(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) mask[static_cast<size_t>(i)] = (i + offset) % period < span;
  return mask;
}

NoiseMask RandomSpansNoiseMask::operator()(int64_t length, double noise_density,
                                           Random& random) const {
  if (noise_density == 0.0) return NoiseMask(static_cast<size_t>(length), 0);
  // At least two tokens, one of them noise and one not, so that there always is a span.
  const int64_t total = std::max<int64_t>(length, 2);
  const int64_t noise = std::clamp<int64_t>(
      round_half_even(static_cast<float>(total) * static_cast<float>(noise_density)), 1, total - 1);
  const int64_t spans = std::max<int64_t>(
      1, round_half_even(static_cast<float>(noise) / static_cast<float>(mean_noise_span_length)));
  const auto noise_lengths = random_segmentation(noise, spans, random);
  const auto text_lengths = random_segmentation(total - noise, spans, random);
  NoiseMask mask;
  mask.reserve(static_cast<size_t>(total));
  for (size_t i = 0; i < std::min(noise_lengths.size(), text_lengths.size()); ++i) {
    mask.insert(mask.end(), static_cast<size_t>(text_lengths[i]), 0);
    mask.insert(mask.end(), static_cast<size_t>(noise_lengths[i]), 1);
  }
  mask.resize(static_cast<size_t>(length), 0);
  if (random_roll && length > 0) {
    const int64_t offset = random.below(total) % length;
    std::rotate(mask.begin(), mask.end() - offset, mask.end());
  }
  return mask;
}

NoiseMask RandomPrefixNoiseMask::operator()(int64_t length, double noise_density,
                                            Random& random) const {
  QT_CHECK(noise_density <= 0.5, "random_prefix_noise_mask: noise_density {} must not exceed 0.5",
           noise_density);
  const int64_t most = length - 1;
  const int64_t least = std::min(
      most, std::max<int64_t>(1, round_half_even(static_cast<float>(1 - 2 * noise_density) *
                                                 static_cast<float>(most))));
  const int64_t prefix = least + random.below(most - least + 1);
  NoiseMask mask(static_cast<size_t>(length), 0);
  std::fill_n(mask.begin(), prefix, uint8_t{1});
  return mask;
}

SpansLengths random_spans_helper(int64_t inputs_length, double noise_density,
                                 double mean_noise_span_length,
                                 int64_t extra_tokens_per_span_inputs,
                                 int64_t extra_tokens_per_span_targets) {
  QT_CHECK(inputs_length > 1, "span corruption: inputs of {} tokens, expected at least 2",
           inputs_length);
  QT_CHECK(
      noise_density > 0 && noise_density < 1 && mean_noise_span_length > 0,
      "span corruption: noise_density {} must be in (0, 1), mean_noise_span_length {} positive",
      noise_density, mean_noise_span_length);
  const auto lengths_of = [&](int64_t tokens) {
    const int64_t noise = round_half_even(static_cast<double>(tokens) * noise_density);
    const int64_t spans = round_half_even(static_cast<double>(noise) / mean_noise_span_length);
    return std::pair(tokens - noise + spans * extra_tokens_per_span_inputs + 1,
                     noise + spans * extra_tokens_per_span_targets + 1);
  };
  int64_t tokens = inputs_length - 1;
  while (lengths_of(tokens + 1).first <= inputs_length) ++tokens;
  auto [inputs, targets] = lengths_of(tokens);
  // Half of it noise: equal lengths are worth one token less (inputs have the rounder number).
  if (noise_density == 0.5 && targets > inputs) {
    --tokens;
    --targets;
  }
  return {tokens, targets};
}

StreamPtr Denoise::apply(StreamPtr input, const Context& context) const {
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

StreamPtr SpanCorruption::apply(StreamPtr input, const Context& context) const {
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

StreamPtr IidDenoising::apply(StreamPtr input, const Context& context) const {
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

StreamPtr PrefixLm::apply(StreamPtr input, const Context& context) const {
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
