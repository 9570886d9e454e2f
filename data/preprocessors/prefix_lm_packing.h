#pragma once
// t5's prefix LM objective that makes model features itself, for converters that pass features
// through: full sequences, cut at a random place into what is seen and what is predicted.

#include "data/examples/preprocessor.h"

namespace quintet::data {

/// full_lm, then trimmed and padded to the length of the targets.
struct TargetsForPrefixLmObjective final : Preprocessor {
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// Two sequences to one row for an encoder and a decoder: the encoder gets the first's prefix and
/// the second's prefix of the length that is left, the decoder the rest of both.
struct PackPrefixLmEncoderDecoder final : Preprocessor {
  int32_t pad_id = 0;
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

/// The same for a decoder alone: one sequence a row.
struct PackPrefixLmDecoderOnly final : Preprocessor {
  bool loss_on_targets_only = true;
  int32_t pad_id = 0;
  bool uses_lengths() const override { return true; }
  StreamPtr apply(StreamPtr input, const PreprocessContext& context) const override;
};

}  // namespace quintet::data
