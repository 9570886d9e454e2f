#pragma once
// What a search reads of a step's logits where that is little: a device then need not send whole
// rows. The sampling request and the top-k result count rows as the search's rows() does.
//
//   if (const SamplingRequest* request = decoder.sampling_request()) ...  // null: it reads whole rows
//   decoder.advance(TopKResult{...});

#include <span>
#include <vector>

#include "kernels/logits/sample_rows.h"
#include "models/decoding/search/token_choice.h"

namespace quintet::decoding {

struct SamplingRequest {
  int64_t best = 0;                 // how many of each row's largest elements; 0: nothing of them
  std::vector<RowDraw> draws = {};  // tokens drawn, or given ones' logits
};

struct TopKResult {
  int64_t width = 0;                  // elements listed of each row, at least those asked for
  const float* values = nullptr;      // [rows, width], TopRows'
  const int32_t* indices = nullptr;   // [rows, width]
  const float* log_sums = nullptr;    // [rows]
  const DrawnToken* drawn = nullptr;  // [draws]

  float log_prob(int64_t row, float logit) const {
    return (logit - values[row * width]) - log_sums[row];
  }
  /// The likeliest tokens of a row, likeliest first, ties by token. Those without a chance are left
  /// out, as is every token of a row in which not all are numbers.
  std::vector<TokenLogProb> likeliest(int64_t row, int64_t count) const;
};

}  // namespace quintet::decoding
