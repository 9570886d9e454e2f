#pragma once
// What GpuDecoder makes of token ids before they are a network's.

#include <span>
#include <utility>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace quintet::decoding {

/// Tokens of each item, and, if padding stands before a token anywhere, [batch, length] places of
/// the encoder's output with those of tokens first; an item of padding alone counts as one token.
std::pair<std::vector<int32_t>, std::vector<int32_t>> without_padding(
    std::span<const int32_t> tokens, int64_t batch, int64_t length);

/// A copy of x whose elements have these axes instead.
Tensor with_axes(const Tensor& x, std::vector<Axis> axes);

}  // namespace quintet::decoding
