#pragma once
// seqio's and t5's preprocessors of token ids: ends, trimming, joining and splitting. Members are
// the Python arguments, under their names.
//
//   SplitTokens{.max_tokens_per_segment = 3} : {targets: [5, 6, 7, 8]} -> {[5, 6, 7]}, {[8]}

#include "data/examples/preprocessor.h"

namespace quintet::data {

/// seqio.preprocessors.append_eos: to every output feature with add_eos.
struct AppendEos final : Preprocessor {
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// The same after trimming to one less than the feature's length (if lengths are given).
struct AppendEosAfterTrim final : Preprocessor {
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// seqio.preprocessors.truncate_inputs_left: keeps the last sequence_length["inputs"] ids.
struct TruncateInputsLeft final : Preprocessor {
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's trim_tokens_at_front: keeps the last length - 1 ids.
struct TrimTokensAtFront final : Preprocessor {
  std::vector<std::string> keys_to_trim;  // none: all that have a length
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's select_random_chunk: drops empty examples, keeps one chunk of at most max_length ids that
/// starts at a multiple of the length, or anywhere.
struct SelectRandomChunk final : Preprocessor {
  std::optional<int64_t> max_length = {};  // none: the feature's length, less one for EOS
  std::string feature_key = "targets";
  std::vector<std::string> additional_feature_keys;
  std::vector<std::string> passthrough_feature_keys;
  bool uniform_random_start = false;
  std::optional<int64_t> min_length =
      {};  // given: the length is drawn from [min_length, max_length)
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's reduce_concat_tokens: joins the ids of batch_size examples, without zeros.
struct ReduceConcatTokens final : Preprocessor {
  std::string feature_key = "targets";
  int64_t batch_size = 128;
  int64_t examples_joined() const override { return batch_size; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's split_tokens: consecutive pieces of max_tokens_per_segment ids; with min_tokens_per_segment
/// a length is drawn log-uniformly for each example. Empty examples are dropped.
struct SplitTokens final : Preprocessor {
  std::optional<int64_t> min_tokens_per_segment = {};
  int64_t max_tokens_per_segment = 0;
  std::string feature_key = "targets";
  std::vector<std::string> additional_feature_keys;
  std::vector<std::string> passthrough_feature_keys;
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's split_tokens_to_{inputs,targets}_length and, with min_tokens_per_segment 8,
/// split_tokens_to_random_length: split_tokens by a feature's length, less one for EOS.
struct SplitTokensToLength final : Preprocessor {
  std::string length_of = "inputs";
  std::optional<int64_t> min_tokens_per_segment = {};
  std::string feature_key = "targets";
  std::vector<std::string> additional_feature_keys;
  std::vector<std::string> passthrough_feature_keys;
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's concatenate_and_split_to_fixed_length: one endless text cut into equal pieces.
struct ConcatenateAndSplitToFixedLength final : Preprocessor {
  std::string feature_key = "targets";
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// t5's full_lm: random chunk, EOS, join 128, split to the length of the targets.
struct FullLm final : Preprocessor {
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// seqio.utils.trim_dataset: the first sequence_length[f] ids of every output feature.
StreamPtr trim_output_features(StreamPtr input, const PreprocessContext& context);

}  // namespace quintet::data
