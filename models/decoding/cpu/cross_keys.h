#pragma once
// What cross-attention reads: keys and values of every layer, made once an input from the encoder's
// output and shared by all rows that decode it.

#include <memory>
#include <span>
#include <vector>

#include "kernels/decode_attention/decode_attention.h"
#include "models/decoding/cpu/prefill.h"

namespace quintet::decoding {

/// Slots for keys and values, [layers, items, kv heads], in one block of memory.
std::vector<SharedKeys> lay_out_cross(const StackSpec& decoder, const Sequences& sequences,
                                      CacheType type, std::shared_ptr<float>& memory);

/// Floats of an input's keys and values in all layers.
int64_t cross_floats(const StackSpec& decoder, int64_t length, CacheType type);

/// encoded [n, embed]: the encoder's output before its final norm, which is done in place. keys: [layers, items, kv heads], each laid out (SharedKeys::at) for its item's length and filled here; or
/// empty, when only the norm is wanted.
void finish_encoding(const PackedNetwork& network, const Sequences& sequences,
                     std::span<float> encoded, std::span<const SharedKeys> keys);

}  // namespace quintet::decoding
