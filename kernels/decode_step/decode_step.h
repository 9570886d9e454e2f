#pragma once
// What a decoder's step of few rows in one kernel takes; meaning and limits: decode_step_gpu.h.

#include "kernels/kernel.h"
#include "kernels/mlp/mlp.h"

namespace quintet {

inline constexpr int kMostStepLayers = 24;
inline constexpr int64_t kMostStepRows = 4;

/// All in the step's dtype but norms and bias, which are float32.
struct DecodeStepLayer {
  const float *self_norm = nullptr, *cross_norm = nullptr, *mlp_norm = nullptr;  // [embed]
  const void* qkv = nullptr;                          // [embed, 3 heads head_dim]
  const void* out = nullptr;                          // [heads head_dim, embed]
  const void *query = nullptr, *cross_out = nullptr;  // [embed, heads head_dim] and as `out`
  const void *wi_0 = nullptr, *wi_1 = nullptr;        // [embed, mlp_dim]; wi_1 null unless gated
  const void* wo = nullptr;                           // [mlp_dim, embed]
  const float* bias = nullptr;                        // [heads, biases] as DecodeSelf's
  void *keys = nullptr, *values = nullptr;            // DecodeSelf's cache
  const void *cross_keys = nullptr, *cross_values = nullptr;  // [items, inputs, heads head_dim]
};

/// Layers of a decoder over rows of x; keys and values as DecodeSelf and DecodeCross have them.
struct DecodeStep {
  DType dtype = DType::bf16;  // or float32
  int32_t items = 0, decodes = 1, embed = 0, heads = 0, head_dim = 0, mlp_dim = 0, biases = 0;
  Activation act0 = Activation::linear, act1 = Activation::linear;
  int32_t inputs = 0;      // tokens of an item that cross-attention has room for; 0: there is none
  int32_t max_length = 0;  // of a row's cache
  int64_t sequence_stride = 0, head_stride = 0, token_stride = 0;  // of it, in elements
  float eps = 1e-6f;                                               // of the norms
  const int32_t *positions = nullptr, *lengths = nullptr;          // [rows], [items]
  const uint16_t* sources = nullptr;                               // [rows, max_length]
  const void* x = nullptr;                                         // [rows, embed]
  void* out =
      nullptr;  // [rows, embed]: before the decoder's norm; may be x; of a step without logits
  const float* norm = nullptr;           // [embed]: the decoder's
  const void* logits_weights = nullptr;  // [embed, vocab]; null: no logits
  float* logits = nullptr;               // [rows, vocab]: logit_scale times the products
  float logit_scale = 1;
  int32_t vocab = 0;
  void* workspace = nullptr;  // zeros before the first step, then left alone
  int32_t layers = 0;
  DecodeStepLayer layer[kMostStepLayers];

  constexpr int32_t rows() const { return items * decodes; }
};

}  // namespace quintet
