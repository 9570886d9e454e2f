#pragma once
// A decoder's layers over the rows of a step on the current device; attention is the caller's, who
// knows where keys and values are.

#include <functional>

#include "kernels/decode_attention/decode_rows.h"
#include "models/decoding/gpu/gpu_weights.h"

namespace quintet::decoding {

/// Queues kernels that leave what the rows' queries find in rows.out.
struct StepAttention {
  /// key, value: of the new tokens, beside the queries, a stride of theirs apart. bias: float32 [heads, distances back], or absent.
  std::function<void(size_t layer, const DecodeRows& rows, const void* key, const void* value,
                     const Tensor& bias)>
      self;
  /// Not called for a decoder alone.
  std::function<void(size_t layer, const DecodeRows& rows)> cross;
  const int32_t* positions = nullptr;  // [rows], device memory: where the new tokens stand
};

/// Queries and keys of self-attention [..., heads * head_dim] as they meet: with rotary embeddings turned by their
/// positions, int32 [...], or absent: they count from 0 along the axis before heads. `others`: heads behind them that
/// stay as they are.
Tensor placed(const LayerConfig& sizes, const Tensor& heads, const Tensor& positions = {},
              int64_t others = 0);

/// Output before the final norm, [rows, embed]. x: embedded tokens, which it may overwrite; `rows`:
/// items and decodes of the kernels; attended: [rows, joined_kv] that attention writes.
Tensor queue_layers(const GpuWeights& weights, Tensor x, DecodeRows rows, const Tensor& attended,
                    const StepAttention& attention);

}  // namespace quintet::decoding
