#pragma once
// t5's denoising objectives: a noise mask over the tokens, and what becomes of noise in inputs and
// targets. Source: t5/data/preprocessors.py; arXiv:1910.10683 section 3.3.
//
//   tokens  [10 11 12 13 14 15], mask [0 1 1 0 0 1], 200 ids
//   noise_span_to_unique_sentinel     -> 10 199 13 14 198
//   nonnoise_span_to_unique_sentinel  -> 199 11 12 198 15

#include <span>
#include <utility>

#include "data/preprocessor.h"
#include "data/random.h"

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

/// t5's sentinel_id: the last id of the vocabulary, extra ids included.
int32_t sentinel_id(const Vocabulary& vocabulary);

/// One of the functions that keep or replace spans and draw nothing. Throws a usage error for other
/// names: noise_span_to_unique_sentinel, nonnoise_span_to_unique_sentinel, noise_span_to_sentinel,
/// nonnoise_span_to_sentinel, noise_token_to_sentinel, drop_noise_tokens, drop_nonnoise_tokens.
NoiseFnPtr noise_fn(std::string_view name);
std::vector<std::string> noise_fn_names();

/// t5's random_spans_helper: the longest text whose inputs, after masking, fit inputs_length, and
/// the length of its targets; both with EOS.
struct SpansLengths {
  int64_t tokens_length = 0, targets_length = 0;
};
SpansLengths random_spans_helper(int64_t inputs_length, double noise_density,
                                 double mean_noise_span_length,
                                 int64_t extra_tokens_per_span_inputs,
                                 int64_t extra_tokens_per_span_targets);

/// t5's denoise: {targets} -> {inputs, targets}.
struct Denoise final : Preprocessor {
  double noise_density = 0.15;
  NoiseMaskFnPtr noise_mask_fn;
  NoiseFnPtr inputs_fn;
  NoiseFnPtr targets_fn;  // none: targets stay whole
  std::vector<std::string> passthrough_feature_keys;
  std::string input_feature_key = "inputs";
  StreamPtr apply(StreamPtr input, const Context& context) const override;
};

/// t5's span_corruption: random chunk of at most 65,536 ids, 128 of them joined, split so that the
/// corrupted inputs fill their length, denoised with unique sentinels. Does not add EOS.
struct SpanCorruption final : Preprocessor {
  double mean_noise_span_length = 3.0;
  double noise_density = 0.15;
  std::string input_feature_key = "inputs";
  bool merge_examples_to_reduce_padding = true;
  std::optional<int64_t> reserved_for_packing = {};
  std::vector<std::string> passthrough_feature_keys;
  StreamPtr apply(StreamPtr input, const Context& context) const override;
};

/// t5's iid_denoising and prefix_lm.
struct IidDenoising final : Preprocessor {
  StreamPtr apply(StreamPtr input, const Context& context) const override;
};
struct PrefixLm final : Preprocessor {
  double noise_density = 0.5;
  StreamPtr apply(StreamPtr input, const Context& context) const override;
};

}  // namespace quintet::data
