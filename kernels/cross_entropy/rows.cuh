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

/// What a rank passes on of a token's logits in its block of the vocabulary.
struct BlockStatistics {
  float largest, exponentials, sum;  // exponentials: of logit - largest
  float target;                      // logit of the target; 0 if it is elsewhere
  float column;                      // of the first largest
};

/// A chunk of tokens. logits: [tokens, stride], of which `vocabulary` columns count, columns
/// `first_column` and on of `all_columns`; rows start at multiples of 16 bytes.
template <typename T>
struct Rows {
  T* logits;
  int64_t stride;
  int32_t vocabulary;
  int32_t first_column = 0, all_columns;
  const int32_t* targets;
  const float* weights;
  TokenLoss* losses;
  float* log_probabilities;  // may be null
  const BlockStatistics* statistics =
      nullptr;  // of all blocks of a sharded vocabulary: [tokens, blocks]
  int64_t blocks = 0;
  bool has_gradient;    // else logits are left as they are
  int64_t first_token;  // the chunk's place among all tokens, for faults
  FaultSlot* fault;
  LossRule rule;
};

/// The losses and the gradient; where the vocabulary is sharded, this block's part of them.
template <typename T>
void process_rows(const Rows<T>& rows, int64_t tokens, Stream stream);

/// What goes before where it is sharded: statistics [tokens] of this block.
template <typename T>
void summarize_rows(const Rows<T>& rows, int64_t tokens, BlockStatistics* statistics,
                    Stream stream);

}  // namespace quintet::QT_GPU::cross_entropy
