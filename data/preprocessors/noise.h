#pragma once
// Noise: masks over tokens, and what becomes of the tokens under them.
// Source: t5/data/preprocessors.py.
//
//   tokens  [10 11 12 13 14 15], mask [0 1 1 0 0 1], 200 ids
//   noise_span_to_unique_sentinel     -> 10 199 13 14 198
//   nonnoise_span_to_unique_sentinel  -> 199 11 12 198 15

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/examples/random.h"
#include "data/vocabularies/vocabulary.h"

namespace quintet::data {

using NoiseMask = std::vector<uint8_t>;  // 1: noise

/// Makes the mask of `length` tokens.
struct NoiseMaskFn {
  virtual ~NoiseMaskFn() = default;
  virtual NoiseMask operator()(int64_t length, double noise_density, Random& random) const = 0;
};
using NoiseMaskFnPtr = std::shared_ptr<const NoiseMaskFn>;

/// Each token on its own.
struct IidNoiseMask final : NoiseMaskFn {
  NoiseMask operator()(int64_t length, double noise_density, Random& random) const override;
};
/// Equal spans at equal distances.
struct RegularNoiseMask final : NoiseMaskFn {
  int64_t min_span_length = 1, max_span_length = 5;
  NoiseMask operator()(int64_t length, double noise_density, Random& random) const override;
};
/// A number of noise tokens fixed by the density, in spans with the given mean length, starting
/// with text. random_roll turns the mask by a random offset.
struct RandomSpansNoiseMask final : NoiseMaskFn {
  double mean_noise_span_length = 3.0;
  bool random_roll = false;
  NoiseMask operator()(int64_t length, double noise_density, Random& random) const override;
};
/// A prefix of random length: the objective of a prefix LM.
struct RandomPrefixNoiseMask final : NoiseMaskFn {
  NoiseMask operator()(int64_t length, double noise_density, Random& random) const override;
};

/// What tokens become under a mask.
struct NoiseFn {
  virtual ~NoiseFn() = default;
  virtual Tokens operator()(std::span<const int32_t> tokens, const NoiseMask& mask,
                            const Vocabulary& vocabulary, Random& random) const = 0;
};
using NoiseFnPtr = std::shared_ptr<const NoiseFn>;

/// t5's sentinel_id: return_value if given, else the last id of the vocabulary, extra ids included.
int32_t sentinel_id(const Vocabulary& vocabulary, std::optional<int32_t> return_value = {});

/// A function by its name: noise_span_to_unique_sentinel, nonnoise_span_to_unique_sentinel,
/// noise_span_to_sentinel, nonnoise_span_to_sentinel, noise_token_to_sentinel, drop_noise_tokens,
/// drop_nonnoise_tokens, which draw nothing; permute_noise_tokens and
/// noise_token_to_gathered_token, which take the place of noise from other tokens. Throws a usage
/// error for other names. `sentinel` is sentinel_id's return_value.
NoiseFnPtr noise_fn(std::string_view name, std::optional<int32_t> sentinel = {});
std::vector<std::string> noise_fn_names();

/// Noise becomes a random id of the vocabulary, not one of the first num_reserved_tokens.
struct NoiseTokenToRandomToken final : NoiseFn {
  int32_t num_reserved_tokens = 3;
  Tokens operator()(std::span<const int32_t> tokens, const NoiseMask& mask,
                    const Vocabulary& vocabulary, Random& random) const override;
};
/// With probability random_prob what `random_token` makes of it, else the sentinel.
struct NoiseTokenToRandomTokenOrSentinel final : NoiseFn {
  double random_prob = 0.1;
  NoiseTokenToRandomToken random_token;
  std::optional<int32_t> sentinel = {};
  Tokens operator()(std::span<const int32_t> tokens, const NoiseMask& mask,
                    const Vocabulary& vocabulary, Random& random) const override;
};

/// t5's random_spans_helper: the longest text whose inputs, after masking, fit inputs_length, and
/// the length of its targets; both with EOS.
struct SpansLengths {
  int64_t tokens_length = 0, targets_length = 0;
};
SpansLengths random_spans_helper(int64_t inputs_length, double noise_density,
                                 double mean_noise_span_length,
                                 int64_t extra_tokens_per_span_inputs,
                                 int64_t extra_tokens_per_span_targets);

}  // namespace quintet::data
