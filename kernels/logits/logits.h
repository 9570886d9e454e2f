#pragma once
// Reading a row of logits: what greedy, sampling and beam search ask of [vocab] floats. Each
// function handles one row on one thread; callers spread rows over threads. Highway, run-time
// dispatch.
//
//   const RowSummary s = summarize(row);                      // greedy token and its log probability
//   const float log_prob = s.log_softmax(row[token]);         // jax.nn.log_softmax(row)[token]
//
// NaN logits are never chosen. Ties go to the lower index, as in jax.numpy.argmax and
// jax.lax.top_k.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/threefry.h"

namespace quintet {

struct RowSummary {
  float max = 0;       // the largest element
  int64_t argmax = 0;  // its first index
  float log_sum = 0;   // log(sum(exp(x - max)))

  /// Of an element of the row.
  float log_softmax(float x) const { return (x - max) - log_sum; }
};

/// First index of the largest element; the row must not be empty.
int64_t argmax(std::span<const float> row);
RowSummary summarize(std::span<const float> row);

/// The k-th largest element, k >= 1, counting equal ones as often as they occur; the lowest finite
/// float if there are fewer than k elements above minus infinity. `scratch` avoids allocation.
float kth_largest(std::span<const float> row, int64_t k, std::vector<float>& scratch);

/// Appends the indices of all elements >= threshold, in increasing order.
void indices_at_least(std::span<const float> row, float threshold, std::vector<int32_t>& out);

/// row[i] / divisor for all i, in place.
void divide(std::span<float> row, float divisor);

/// Index drawn from softmax(row): the first argmax of row[i] plus Gumbel noise, element i of the
/// noise being element first + i of jax.random.gumbel(key, ...) (jax.random.categorical draws this
/// way).
int64_t draw_categorical(std::span<const float> row, Key key, uint64_t first);

/// Element i of jax.random.gumbel(key, shape), for callers that need a few of them.
float gumbel_noise(Key key, uint64_t i);

}  // namespace quintet
