#include "data/preprocessors/noise.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

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
  std::optional<int32_t> sentinel;
  SpanFn(uint8_t replaced, Sentinels by, std::optional<int32_t> id)
      : noise(replaced), sentinels(by), sentinel(id) {}
  Tokens operator()(std::span<const int32_t> tokens, const NoiseMask& mask,
                    const Vocabulary& vocabulary, Random&) const override {
    return replace_spans(tokens, mask, noise, sentinel_id(vocabulary, sentinel), sentinels);
  }
};

/// Noise tokens one by one: each becomes replace().
template <typename Replace>
Tokens replace_noise(std::span<const int32_t> tokens, const NoiseMask& mask, Replace replace) {
  Tokens out(tokens.begin(), tokens.end());
  for (size_t i = 0; i < out.size(); ++i)
    if (mask[i]) out[i] = replace();
  return out;
}

struct TokenToSentinel final : NoiseFn {
  std::optional<int32_t> sentinel;
  explicit TokenToSentinel(std::optional<int32_t> id) : sentinel(id) {}
  Tokens operator()(std::span<const int32_t> tokens, const NoiseMask& mask,
                    const Vocabulary& vocabulary, Random&) const override {
    return replace_noise(tokens, mask, [id = sentinel_id(vocabulary, sentinel)] { return id; });
  }
};

struct Permute final : NoiseFn {
  Tokens operator()(std::span<const int32_t> tokens, const NoiseMask& mask, const Vocabulary&,
                    Random& random) const override {
    Tokens noise;
    for (size_t i = 0; i < tokens.size(); ++i)
      if (mask[i]) noise.push_back(tokens[i]);
    for (size_t i = noise.size(); i > 1; --i)
      std::swap(noise[i - 1], noise[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
    return replace_noise(tokens, mask, [at = noise.begin()]() mutable { return *at++; });
  }
};

struct Gather final : NoiseFn {
  Tokens operator()(std::span<const int32_t> tokens, const NoiseMask& mask, const Vocabulary&,
                    Random& random) const override {
    return replace_noise(tokens, mask, [&] {
      return tokens[static_cast<size_t>(random.below(static_cast<int64_t>(tokens.size())))];
    });
  }
};

using MakeNoiseFn = NoiseFnPtr (*)(std::optional<int32_t> sentinel);
template <uint8_t noise, Sentinels by>
NoiseFnPtr span_fn(std::optional<int32_t> sentinel) {
  return std::make_shared<SpanFn>(noise, by, sentinel);
}
constexpr std::pair<std::string_view, MakeNoiseFn> kNoiseFns[] = {
    {"noise_span_to_unique_sentinel", span_fn<1, Sentinels::unique>},
    {"nonnoise_span_to_unique_sentinel", span_fn<0, Sentinels::unique>},
    {"noise_span_to_sentinel", span_fn<1, Sentinels::same>},
    {"nonnoise_span_to_sentinel", span_fn<0, Sentinels::same>},
    {"noise_token_to_sentinel",
     [](std::optional<int32_t> sentinel) -> NoiseFnPtr {
       return std::make_shared<TokenToSentinel>(sentinel);
     }},
    {"drop_noise_tokens", span_fn<1, Sentinels::none>},
    {"drop_nonnoise_tokens", span_fn<0, Sentinels::none>},
    {"permute_noise_tokens",
     [](std::optional<int32_t>) -> NoiseFnPtr { return std::make_shared<Permute>(); }},
    {"noise_token_to_gathered_token",
     [](std::optional<int32_t>) -> NoiseFnPtr { return std::make_shared<Gather>(); }},
};

}  // namespace

int32_t sentinel_id(const Vocabulary& vocabulary, std::optional<int32_t> return_value) {
  return return_value.value_or(vocabulary.vocab_size() - 1);
}

NoiseFnPtr noise_fn(std::string_view name, std::optional<int32_t> sentinel) {
  for (const auto& [key, make] : kNoiseFns)
    if (key == name) return make(sentinel);
  fail(ExitCode::kUsage, "noise function '{}' is not known; the known ones are {}", name,
       fmt::join(noise_fn_names(), ", "));
}

std::vector<std::string> noise_fn_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : kNoiseFns) names.emplace_back(name);
  return names;
}

Tokens NoiseTokenToRandomToken::operator()(std::span<const int32_t> tokens, const NoiseMask& mask,
                                           const Vocabulary& vocabulary, Random& random) const {
  const int64_t ids = vocabulary.vocab_size() - num_reserved_tokens;
  QT_CHECK(ids > 0, "noise_token_to_random_token: num_reserved_tokens {} of {} ids",
           num_reserved_tokens, vocabulary.vocab_size());
  return replace_noise(
      tokens, mask, [&] { return static_cast<int32_t>(num_reserved_tokens + random.below(ids)); });
}

Tokens NoiseTokenToRandomTokenOrSentinel::operator()(std::span<const int32_t> tokens,
                                                     const NoiseMask& mask,
                                                     const Vocabulary& vocabulary,
                                                     Random& random) const {
  Tokens out = random_token(tokens, mask, vocabulary, random);
  for (size_t i = 0; i < out.size(); ++i)
    if (mask[i] && random.uniform() >= random_prob) out[i] = sentinel_id(vocabulary, sentinel);
  return out;
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

}  // namespace quintet::data
