#pragma once
// What route and its gradient share: the attributes, and where tokens lie. Tokens are
// numbered as the routing sees them, added padding included.

#include "kernels/moe/route.h"

namespace quintet::cpu {

struct Routing {
  const char* op;
  Router router;
  int64_t rows, length, embed, experts;  // of the local block of x; of all
  int64_t padded_rows, padded_length;
  int64_t choices, capacity, group_size, groups;
  bool batch_priority, ignore_padding;

  Routing(const char* op, const View& x, const View& w, const Attrs& attrs);

  constexpr int64_t tokens() const { return padded_rows * padded_length; }
  constexpr int64_t real_tokens() const { return rows * length; }
  constexpr int64_t local_groups() const { return tokens() / group_size; }
  /// Where token `number` is in x, or -1: added padding.
  constexpr int64_t place(int64_t number) const {
    const int64_t row = number / padded_length, column = number % padded_length;
    return row < rows && column < length ? row * length + column : -1;
  }
  /// Tokens that the losses are means over, on all ranks.
  constexpr double all_tokens() const {
    return static_cast<double>(groups) * static_cast<double>(group_size);
  }
};

/// x times the jitter of `attrs`, if any, in this thread's scratch memory; else x itself. times_jitter
/// multiplies in place.
const float* jittered(const View& x, const Attrs& attrs);
void times_jitter(const View& x, const Attrs& attrs, float* values);

/// Whether a token's x is all zero.
bool is_zero(const float* x, int64_t embed);

/// probabilities = softmax(logits) of one token; returns logsumexp(logits).
float softmax(const float* logits, float* probabilities, int64_t experts);

}  // namespace quintet::cpu
