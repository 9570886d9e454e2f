#pragma once
// What score_batch.return_intermediates adds to scores: T5X's own three, and what the network sows.

#include "data/metrics/answer.h"
#include "models/base_model.h"

namespace quintet {

/// Of a batch of model features; copies what it needs, numbers as float32.
class Intermediates {
 public:
  /// `sown`: what BaseModel::score_tokens has filled. Layers in one array have their values in one, [batch, length,
  /// layers, embed], under the scanned stack's name, as Flax has them.
  Intermediates(const ModelSpec& spec, const HostArrays& batch,
                const BaseModel::TokenScores& tokens, const SownValues& sown);
  /// Fields in fields, as Flax's modules hold each other: {"decoder": {"layers_0": {"activations": [[...]]}}}; each value
  /// is alone in a list.
  data::Fields of_row(size_t row) const;
  /// By their whole names, "decoder/layers_0/activations".
  const HostArrays& arrays() const { return arrays_; }

 private:
  HostArrays arrays_;
};

}  // namespace quintet
