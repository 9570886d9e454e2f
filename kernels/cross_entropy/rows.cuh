#pragma once
// Rows of logits, each turned in place into its gradient by a block or a cluster of blocks.

#include "kernels/kernel.h"
#include "kernels/simt/fault.cuh"

namespace quintet::QT_GPU::cross_entropy {

/// What all tokens share; soft is `on` at the target and `off` elsewhere.
struct LossRule {
  float on = 1, off = 0, constant = 0, z = 0;
};

/// What a token adds to the sums.
struct TokenLoss {
  float loss, z_loss, correct;
};

/// A chunk of tokens. logits: [tokens, stride], of which `vocabulary` columns count; rows start at
/// multiples of 16 bytes.
template <typename T>
struct Rows {
  T* logits;
  int64_t stride;
  int32_t vocabulary;
  const int32_t* targets;
  const float* weights;
  TokenLoss* losses;
  float* log_probabilities;  // may be null
  bool has_gradient;         // else logits are left as they are
  int64_t first_token;       // the chunk's place among all tokens, for faults
  FaultSlot* fault;
  LossRule rule;
};

template <typename T>
void process_rows(const Rows<T>& rows, int64_t tokens, Stream stream);

}  // namespace quintet::QT_GPU::cross_entropy
