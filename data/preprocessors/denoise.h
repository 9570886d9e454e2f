#pragma once
// t5's denoising objectives: what noise (noise.h) makes of texts, and their preparation.
// Source: t5/data/preprocessors.py; arXiv:1910.10683 section 3.3.

#include "data/examples/preprocessor.h"
#include "data/preprocessors/noise.h"

namespace quintet::data {

/// t5's unsupervised: a list of preprocessors, which a gin file chooses.
struct Unsupervised final : Preprocessor {
  std::vector<PreprocessorPtr> preprocessors;
  int64_t examples_joined() const override;
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's denoise: {targets} -> {inputs, targets}.
struct Denoise final : Preprocessor {
  double noise_density = 0.15;
  NoiseMaskFnPtr noise_mask_fn;
  NoiseFnPtr inputs_fn;
  NoiseFnPtr targets_fn;  // none: targets stay whole
  std::vector<std::string> passthrough_feature_keys;
  std::string input_feature_key = "inputs";
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
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
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's iid_denoising and prefix_lm.
struct IidDenoising final : Preprocessor {
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};
struct PrefixLm final : Preprocessor {
  double noise_density = 0.5;
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

}  // namespace quintet::data
