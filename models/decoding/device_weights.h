#pragma once
// A decoder's parameters as DeviceDecoder reads them, in the memory of the current device.

#include <vector>

#include "models/base_model.h"

namespace quintet::decoding {

constexpr int64_t kMaxDistance = 128;  // of T5's relative position buckets

struct DeviceWeights {
  struct Layer {
    Tensor self_norm, query, key, value, qkv, self_out;  // qkv: the three side by side
    Tensor cross_norm, cross_query, cross_key, cross_value, cross_out;  // absent in a decoder alone
    Tensor mlp_norm, wi_0, wi_1, wo;                                    // wi_1 absent unless gated
  };
  LayerConfig config;
  int64_t vocab_size = 0;
  bool has_encoder = false;
  std::vector<Layer> layers;
  Tensor embedding, norm;
  Tensor bias_table, bias;  // [heads, buckets]; [heads, distances back]
  Projection projection;

  /// Of an EncoderDecoderModel or a DecoderOnlyModel without experts in the decoder.
  explicit DeviceWeights(const BaseModel& model);
  DType dtype() const { return embedding.spec().dtype; }
  int64_t joined_kv() const { return config.num_heads * config.head_dim; }
};

}  // namespace quintet::decoding
