#pragma once
// Softmax statistics and gradients of a block of columns of the logits, vectorised (Highway).

#include <cstdint>

namespace quintet::cross_entropy {

/// What one row of one block of logits adds to the row's softmax.
struct RowStatistics {
  float largest = 0;
  float exponentials = 0;  // sum of exp(logit - largest)
  float sum = 0;           // of the logits
};

/// statistics[i] of row i of logits [rows, columns] (contiguous). A NaN makes `exponentials` NaN.
void block_statistics(const float* logits, int64_t rows, int64_t columns,
                      RowStatistics* statistics);

/// How a row's softmax becomes its gradient.
struct RowGradient {
  float lse = 0;
  float softmax = 0;  // factor of exp(logit - lse)
  float minus = 0;    // taken off every column
};

/// logits = softmax * exp(logits - lse) - minus, in place.
void block_gradient(float* logits, int64_t rows, int64_t columns, const RowGradient* gradients);

}  // namespace quintet::cross_entropy
