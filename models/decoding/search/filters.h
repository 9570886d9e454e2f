#pragma once
// Masks over one row of scaled logits. Source: T5X binary_search.py (topk_mask, topp_mask), which
// searches the threshold bit by bit; here it is selected. The sets kept are the same: ties are
// kept.

#include <cstdint>
#include <span>
#include <vector>

namespace quintet::decoding {

/// Keeps the k largest elements (more if the k-th is tied), sets the others to `replacement`.
void topk_mask(std::span<float> row, int64_t k, float replacement, std::vector<float>& scratch);

/// Keeps the smallest set of most likely elements whose probabilities sum to at least p (and
/// whatever is exactly as likely as the last of them), sets the others to `replacement`.
void topp_mask(std::span<float> row, float p, float replacement, std::vector<float>& scratch);

}  // namespace quintet::decoding
